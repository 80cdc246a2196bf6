"""Another order of threads: each runs once, and kernels that do not race give the same results."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hal_core as hal
from hal_kernel.interpreter import execute, interpret, lanes
from hal_kernel.interpreter.arguments import Inputs
from hal_kernel.interpreter.executor import LoopLimits
from hal_kernel.interpreter.prepared import PreparedKernel

DIMENSION = st.integers(1, 6)
THREE = st.tuples(DIMENSION, DIMENSION, DIMENSION)


@hal.kernel
def place(seen: hal.Ptr[hal.int32], order: hal.Ptr[hal.int32], taken: hal.Ptr[hal.int32]) -> None:
    i = hal.global_idx(0) + 36 * (hal.global_idx(1) + 36 * hal.global_idx(2))
    hal.atomic_add(seen, i, 1)
    order[i] = hal.atomic_add(taken, 0, 1)


@hal.kernel(block=(8, 1, 1))
def reverse(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32]) -> None:
    tile = hal.shared(hal.int32, 8)
    t = hal.thread_idx(0)
    tile[t] = x[hal.global_idx(0)]
    hal.barrier()
    y[hal.global_idx(0)] = tile[7 - t]


def carried_out(kernel, arrays, geometry, seed):
    given = Inputs(dict(enumerate(arrays)), {}, {})
    execute(PreparedKernel(kernel.lower(), "HERE"), given, geometry, LoopLimits(1000), seed=seed)


@settings(max_examples=30)
@given(grid=THREE, block=THREE, seed=st.integers(0, 9), together=st.sampled_from([1, 40, 1 << 16]))
def test_every_thread_comes_once(grid, block, seed, together):
    arrays = [np.zeros(36**3, "i4"), np.full(36**3, -1, "i4"), np.zeros(1, "i4")]
    with mock.patch.object(lanes, "_LANES", together):
        carried_out(place, arrays, (grid, block), seed)
    seen, order, taken = arrays
    x, y, z = (g * b for g, b in zip(grid, block, strict=True))
    expected = np.zeros((36, 36, 36), bool)
    expected[:z, :y, :x] = True
    assert (seen == expected.reshape(-1)).all()
    came = order[order >= 0]
    assert sorted(came) == list(range(x * y * z)) and taken[0] == x * y * z


def test_the_order_is_another_one_for_each_seed():
    orders = set()
    for seed in range(6):
        arrays = [np.zeros(100, "i4") for _ in range(3)]
        carried_out(place, arrays, ((5, 1, 1), (20, 1, 1)), seed)
        orders.add(tuple(arrays[1].tolist()))
    assert len(orders) == 6 and tuple(range(100)) in orders


@pytest.mark.parametrize("seed", range(5))
def test_what_threads_do_with_barriers_is_the_same_in_any_order(seed):
    x = np.arange(24, dtype="i4")
    y, expected = np.zeros(24, "i4"), np.zeros(24, "i4")
    carried_out(reverse, [y, x], ((3, 1, 1), (8, 1, 1)), seed)
    interpret(reverse, expected, x, grid=3)
    assert y.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_a_fault_names_the_thread_in_any_order(seed):
    text = (
        r"a write of 'y' by thread \(7, 0, 0\) of block \(2, 0, 0\) "
        r"\(got 23; limit 0 to 22\) on HERE"
    )
    arrays = [np.zeros(23, "i4"), np.zeros(24, "i4")]
    with pytest.raises(hal.OutOfBounds, match=text):
        carried_out(reverse, arrays, ((3, 1, 1), (8, 1, 1)), seed)

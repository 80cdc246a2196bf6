"""Elements that all threads load at the start are loaded once for a block, and bound its loops."""

from __future__ import annotations

import numpy as np
import pytest
from toolchains import Toolchain

import hal_core as hal
from hal_core.ir.blocks.fission import split
from hal_core.ir.blocks.hoisting import COMMON
from hal_core.testing import interpret

# mypy: disable-error-code="no-untyped-def"

Numbers = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]


@hal.kernel
def guarded(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < sizes[0]:
        y[i] = sizes[1] * x[i]


@hal.kernel
def strided(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    count = sizes[0]
    factor = x[sizes[2]]
    i = hal.global_idx(0)
    while i < count:
        y[i] += factor * x[i]
        i += hal.grid_dim(0) * hal.block_dim(0)


@hal.kernel
def summed(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    terms = sizes[3]
    if i < n:
        total = y[i]
        for k in range(terms):
            total += x[k] * x[i]
        y[i] = total


@hal.kernel(block=(16, 1, 1))
def staged(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    count = sizes[0]
    t = hal.thread_idx(0)
    tile = hal.shared(hal.int32, 16)
    i = hal.global_idx(0)
    tile[t] = x[i] if i < count else 0
    hal.barrier()
    if i < count:
        y[i] = tile[15 - t] + count


@hal.kernel
def by_parameter(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    end = sizes[n - 59]
    first = sizes[n]
    for k in range(i, first, 7):
        if k < end:
            y[k] = x[k] + hal.global_idx(1)


COMMON_LOADS = {guarded: 1, strided: 3, summed: 1, staged: 1, by_parameter: 1}


@pytest.mark.parametrize("kernel", COMMON_LOADS, ids=lambda kernel: kernel.name)
def test_what_all_threads_load_first(toolchain: Toolchain, kernel: hal.Kernel) -> None:
    lowered = kernel.lower()
    uops = split(lowered, grouped=True)
    found = [node for node in uops if node.op == "LOAD" and node.arg == COMMON]
    assert len(found) == COMMON_LOADS[kernel]
    assert uops.index(found[-1]) < [node.op for node in uops].index("THREADS")
    x = np.random.default_rng(4).integers(-9, 9, 80).astype("i4")
    for count in (0, 1, 37, 60):
        sizes = np.zeros(61, "i4")
        sizes[[0, 1, 2, 3, 60]] = count, 3, 2, 5, count
        y, expected = np.full((2, 80), 5, "i4")
        toolchain.run(lowered, {"y": y, "x": x, "sizes": sizes, "n": 60}, (4, 1, 1), (16, 1, 1))
        interpret(kernel, expected, x, sizes, vals=(60,), grid=4, block=16)
        np.testing.assert_array_equal(y, expected, str(count))


@hal.kernel
def behind_a_guard(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[0]


@hal.kernel
def behind_a_store(y: Numbers, x: Inputs, n: hal.int32):
    y[hal.global_idx(0)] = 1
    y[hal.global_idx(0) + n] = x[0]


@hal.kernel
def of_each_row(y: Numbers, x: Inputs, n: hal.int32):
    y[hal.global_idx(0)] = x[hal.global_idx(1)]


@pytest.mark.parametrize(
    "kernel", [behind_a_guard, behind_a_store, of_each_row], ids=lambda kernel: kernel.name
)
def test_what_some_threads_may_not_load_is_loaded_where_it_stands(kernel: hal.Kernel) -> None:
    assert all(node.arg != COMMON for node in split(kernel.lower(), grouped=True))

"""Parameters on the same memory: a race is found through any name and dtype."""

import re
from itertools import product

import numpy as np
import pytest

import hal_core as hal
from hal_kernel.interpreter import interpret, overlap


def make_move(target, source, back=True):
    """Return a kernel that computes `y[i] = x[by + i]`, or `x[by - i]`."""
    step = -1 if back else 1

    @hal.kernel
    def move(y: hal.Ptr[target], x: hal.ConstPtr[source], by: hal.int32) -> None:
        i = hal.global_idx(0)
        y[i] = target(x[by + step * i])

    return move


reverse = make_move(hal.int32, hal.int32)
shift = make_move(hal.int32, hal.int32, back=False)


@hal.kernel
def write_both(y: hal.Ptr[hal.int32], z: hal.Ptr[hal.uint8], at: hal.int32) -> None:
    if hal.global_idx(0) == 0:
        y[1] = 1
    else:
        z[at] = hal.uint8(2)


@hal.kernel
def add_both(y: hal.Ptr[hal.int32], z: hal.Ptr[hal.int32]) -> None:
    hal.atomic_add(y, 0, 1)
    hal.atomic_add(z, 0, 1)


def test_one_array_twice():
    a = np.arange(8, dtype="i4")
    text = "a race for element 0 of 'y', on whose memory 'x' lies too: a write by thread (0, 0, 0)"
    with pytest.raises(hal.KernelFault, match=re.escape(text)):
        interpret(reverse, a, a, vals=(7,), threads=8, block=8)
    interpret(shift, a, a, vals=(0,), threads=8, block=8)  # each thread its own element


def test_several_threads_are_ordered_by_nothing_but_barriers():
    @hal.kernel(block=(8, 1, 1))
    def meet(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32]) -> None:
        i = hal.global_idx(0)
        value = x[i + 7 - 2 * hal.thread_idx(0)]
        hal.barrier()
        y[i] = value

    a = np.arange(16, dtype="i4")
    interpret(meet, a, a, grid=2)
    assert a.tolist() == [*range(7, -1, -1), *range(15, 7, -1)]


DTYPES = {"i1": hal.int8, "i2": hal.int16, "i4": hal.int32, "f8": hal.float64}


@pytest.mark.parametrize(("to", "of"), [*product(DTYPES, DTYPES)])
def test_views_of_any_dtype_at_any_place(to, of):
    """Compare with a list of all accesses to each byte."""
    move = make_move(DTYPES[to], DTYPES[of], back=False)
    wide, narrow = np.dtype(to).itemsize, np.dtype(of).itemsize
    threads = 3
    for at, first in product((0, 4, 15), range(0, 40, 3)):
        memory = np.zeros(80, "u1")
        y = np.frombuffer(memory.data, to, threads, at)
        x = np.frombuffer(memory.data, of, threads, first)
        written = {at + k: k // wide for k in range(threads * wide)}
        races = any(
            written.get(first + k, k // narrow) != k // narrow for k in range(threads * narrow)
        )
        if not races:
            interpret(move, y, x, vals=(0,), threads=threads, block=threads)
            continue
        with pytest.raises(hal.KernelFault, match="a race for element"):
            interpret(move, y, x, vals=(0,), threads=threads, block=threads)


@pytest.mark.parametrize(("at", "races"), [(3, False), (4, True), (7, True), (8, False)])
def test_two_that_are_written(at, races):
    memory = np.zeros(4, "i4")
    if not races:
        interpret(write_both, memory, memory.view("u1"), vals=(at,), threads=2, block=2)
        return
    text = f"element {at} of 'z', on whose memory 'y' lies too: a write by thread (1, 0, 0)"
    with pytest.raises(hal.KernelFault, match=re.escape(text)):
        interpret(write_both, memory, memory.view("u1"), vals=(at,), threads=2, block=2)


def test_atomics_of_one_element_do_not_race():
    total = np.zeros(1, "i4")
    interpret(add_both, total, total, threads=8, block=8)
    assert total[0] == 16


def test_a_chain_of_three_and_a_separate_one():
    """Two separate arrays share a shadow when a third lies on both."""
    memory = np.zeros(40, "u1")
    arrays = {
        0: memory[0:16], 1: memory[24:40], 2: memory[8:32], 3: np.zeros(4, "u1"), 4: memory[3:3],
    }  # fmt: skip
    records = overlap.shared_shadows(arrays, {})
    assert records.keys() == {0, 1, 2}
    assert len({id(record.shadow) for record in records.values()}) == 1
    assert [records[k].others for k in (0, 1, 2)] == [(1, 2), (0, 2), (0, 1)]

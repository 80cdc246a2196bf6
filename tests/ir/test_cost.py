"""The estimate of a thread's work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hal_core as hal
from hal_core.dtypes import int32, int64
from hal_kernel.ir import UOp
from hal_kernel.ir.cost import operations_per_thread


@hal.kernel
def straight(y: hal.Ptr[hal.float32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = 1.0
    else:
        y[0] = y[i] * 2.0


@hal.kernel
def loops(y: hal.Ptr[hal.float32]) -> None:
    r = 2
    for j in range(-r, r + 1):
        y[j] += 1.0
        for k in range(10, 0, -3):
            y[k] = 0.0


@hal.kernel
def unknown(y: hal.Ptr[hal.float32], n: hal.int32) -> None:
    for j in range(n):
        y[j] = 0.0


@hal.kernel
def endless(y: hal.Ptr[hal.float32]) -> None:
    while y[0] < 1.0:
        y[0] = y[0] * 2.0


@hal.kernel
def waiting(y: hal.Ptr[hal.int32]) -> None:
    tile = hal.shared(hal.int32, 64)
    tile[hal.thread_idx(0)] = 1
    hal.barrier()
    hal.atomic_add(y, 0, tile[0])


def test_a_loop_without_a_count_is_unknown() -> None:
    """A launch that may take seconds would keep the GIL."""
    assert operations_per_thread(endless.lower().uops) is None


def test_shared_memory_is_there_and_waiting_is_not_counted() -> None:
    assert operations_per_thread(waiting.lower().uops) == 3  # STORE, LOAD, ATOMIC


def test_a_bound_of_many_doublings_takes_no_time_of_its_own() -> None:
    """Each sum was worked out once for every way to it: thirty doublings never came to an end."""
    uops = [UOp("CONST", int64, (), 1)]
    zero, one = UOp("CONST", int64, (), 0), uops[0]
    for _ in range(60):
        uops.append(UOp("ADD", int64, (uops[-1], uops[-1])))
    loop = UOp("RANGE", int64, (zero, uops[-1], one), "k")
    uops += [zero, loop, UOp("NEG", int64, (loop,)), UOp("ENDRANGE", None, (loop,))]
    assert operations_per_thread(uops) == 60 + 2**60


def test_a_bound_wraps_as_the_kernel_does() -> None:
    uops = [UOp("CONST", int32, (), 2**31 - 1), UOp("CONST", int32, (), 1)]
    uops.append(UOp("ADD", int32, (uops[0], uops[1])))
    loop = UOp("RANGE", int32, (uops[1], uops[2], uops[1]), "k")
    uops += [loop, UOp("NEG", int32, (loop,)), UOp("ENDRANGE", None, (loop,))]
    assert operations_per_thread(uops) == 1


def test_both_sides_of_an_if_count() -> None:
    assert operations_per_thread(straight.lower().uops) == 5  # LT, STORE, LOAD, MUL, STORE


def test_loops_multiply() -> None:
    bounds = 2  # NEG and ADD
    assert operations_per_thread(loops.lower().uops) == bounds + 5 * (3 + 4)


def test_a_bound_of_the_launch_is_unknown() -> None:
    assert operations_per_thread(unknown.lower().uops) is None


def loop(start: int, stop: int, step: int) -> tuple[UOp, ...]:
    bounds = tuple(UOp("CONST", int64, (), value) for value in (start, stop, step))
    counter = UOp("RANGE", int64, bounds, "k")
    body = (UOp("NEG", int64, (counter,)), UOp("ENDRANGE", None, (counter,)))
    return (*bounds, counter, *body)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-9, 9).filter(bool))
def test_trip_count_is_ranges(start: int, stop: int, step: int) -> None:
    assert operations_per_thread(loop(start, stop, step)) == len(range(start, stop, step))


@pytest.mark.parametrize("step", [1, 3])
def test_trip_count_at_the_ends_of_int64(step: int) -> None:
    trips = -(-(2**64 - 1) // step)
    assert operations_per_thread(loop(-(2**63), 2**63 - 1, step)) == trips

"""The estimate of a thread's work."""

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


COSTS = {
    straight: 5,  # of both sides: LT, STORE, LOAD, MUL, STORE
    loops: 2 + 5 * (3 + 4),  # NEG and ADD of a bound, and the loops multiply
    waiting: 3,  # STORE, LOAD, ATOMIC; waiting is not counted
    unknown: None,  # a bound of the launch
    endless: None,  # which may take seconds, in which the GIL would be kept
}


@pytest.mark.parametrize(("kernel", "cost"), COSTS.items(), ids=lambda of: getattr(of, "name", ""))
def test_the_cost_of_a_thread(kernel, cost):
    assert operations_per_thread(kernel.lower().uops) == cost


def test_a_bound_of_many_doublings_takes_no_time_of_its_own():
    """Each sum was worked out once for every way to it: thirty doublings never came to an end."""
    uops = [UOp("CONST", int64, (), 1)]
    zero, one = UOp("CONST", int64, (), 0), uops[0]
    for _ in range(60):
        uops.append(UOp("ADD", int64, (uops[-1], uops[-1])))
    loop = UOp("RANGE", int64, (zero, uops[-1], one), "k")
    uops += [zero, loop, UOp("NEG", int64, (loop,)), UOp("ENDRANGE", None, (loop,))]
    assert operations_per_thread(uops) == 60 + 2**60


def test_a_bound_wraps_as_the_kernel_does():
    uops = [UOp("CONST", int32, (), 2**31 - 1), UOp("CONST", int32, (), 1)]
    uops.append(UOp("ADD", int32, (uops[0], uops[1])))
    loop = UOp("RANGE", int32, (uops[1], uops[2], uops[1]), "k")
    uops += [loop, UOp("NEG", int32, (loop,)), UOp("ENDRANGE", None, (loop,))]
    assert operations_per_thread(uops) == 1


def loop(start, stop, step):
    bounds = tuple(UOp("CONST", int64, (), value) for value in (start, stop, step))
    counter = UOp("RANGE", int64, bounds, "k")
    body = (UOp("NEG", int64, (counter,)), UOp("ENDRANGE", None, (counter,)))
    return (*bounds, counter, *body)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-9, 9).filter(bool))
def test_trip_count_is_ranges(start, stop, step):
    assert operations_per_thread(loop(start, stop, step)) == len(range(start, stop, step))


@pytest.mark.parametrize("step", [1, 3])
def test_trip_count_at_the_ends_of_int64(step):
    trips = -(-(2**64 - 1) // step)
    assert operations_per_thread(loop(-(2**63), 2**63 - 1, step)) == trips

"""Memory seen as another dtype by the interpreter: values, bounds, races, unwritten bytes."""

import numpy as np
import pytest

import hal_core as hal
from hal_kernel.interpreter import interpret


@hal.kernel
def swap_bytes(y: hal.Ptr[hal.uint32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        b = hal.bitcast(hal.uint8, y)
        first = b[4 * i]
        b[4 * i] = b[4 * i + 3]
        b[4 * i + 3] = first


@hal.func
def put(p: hal.Ptr[hal.float32], i: hal.int32, v: hal.float32) -> None:
    p[i] = v


@hal.kernel
def through_functions(y: hal.Ptr[hal.uint8], x: hal.ConstPtr[hal.int64]) -> None:
    i = hal.global_idx(0)
    put(hal.bitcast(hal.float32, y), i, hal.bitcast(hal.float32, x)[i])


@hal.kernel
def shared_bytes(y: hal.Ptr[hal.int32], late: hal.int32) -> None:
    tile = hal.shared(hal.uint8, (3, 5))
    t = hal.thread_idx(0)
    tile[0, t] = hal.uint8(t)
    if late == 0:
        hal.barrier()
    if t == late:
        y[hal.block_idx(0)] = hal.bitcast(hal.int32, tile)[0]


@hal.kernel
def race(y: hal.Ptr[hal.float32]) -> None:
    i = hal.global_idx(0)
    y[i] = 1.0
    hal.bitcast(hal.uint8, y)[2 * i] = 0


@hal.kernel
def wide(y: hal.Ptr[hal.uint8], x: hal.ConstPtr[hal.uint8], i: hal.int32) -> None:
    hal.bitcast(hal.float64, y)[0] = hal.bitcast(hal.float64, x)[i]


def test_bytes_of_a_parameter():
    y = np.array([0x01020304, 0x0A0B0C0D], np.uint32)
    interpret(swap_bytes, y, vals=(2,), threads=2)
    assert [hex(v) for v in y] == ["0x4020301", "0xd0b0c0a"]


def test_views_are_passed_to_functions():
    x = np.arange(8, dtype="f4")
    y = np.zeros(32, np.uint8)
    interpret(through_functions, y, x.view(np.int64), grid=1, block=8)
    assert y.view("f4").tolist() == x.tolist()


def test_every_block_has_a_shared_array_of_its_own():
    """15 bytes are no whole number of int32; each block's array begins at one nevertheless."""
    y = np.zeros(3, np.int32)
    interpret(shared_bytes, y, vals=(0,), grid=3, block=4)
    assert y.tolist() == [0x03020100] * 3


def test_a_race_between_a_view_and_the_array_itself():
    with pytest.raises(hal.KernelFault, match="a race for element 2 of 'y'"):
        interpret(race, np.zeros(4, "f4"), grid=4, block=1)
    with pytest.raises(hal.KernelFault, match="a race for element 0 of 'tile'"):
        interpret(shared_bytes, np.zeros(1, "i4"), vals=(1,), grid=1, block=4)


def test_bytes_that_nothing_has_written():
    with pytest.raises(hal.KernelFault, match="nothing has written"):
        interpret(shared_bytes, np.zeros(1, "i4"), vals=(0,), grid=1, block=3)
    x, known = np.zeros(16, np.uint8), np.arange(16) < 12
    interpret(wide, np.zeros(8, "u1"), x, vals=(0,), threads=1, initialised=(None, known))
    with pytest.raises(hal.KernelFault, match="nothing has written"):
        interpret(wide, np.zeros(8, "u1"), x, vals=(1,), threads=1, initialised=(None, known))


def test_only_whole_elements_are_inside():
    with pytest.raises(hal.OutOfBounds, match="limit 0 to 1"):
        interpret(wide, np.zeros(8, "u1"), np.zeros(23, "u1"), vals=(2,), threads=1)


def test_memory_that_begins_between_elements():
    base = np.zeros(32, np.uint8)
    start = -base.ctypes.data % 8 + 4
    with pytest.raises(hal.KernelFault, match="'x' does not begin at an element of float64"):
        interpret(wide, np.zeros(8, "u1"), base[start : start + 8], vals=(0,), threads=1)

"""`hal.load` and `hal.store`: several elements at once, in the interpreter and in checked mode."""

import numpy as np
import pytest

import hal_core as hal
from hal_core.signature import Signature
from hal_kernel.errors import InvalidKernel
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.verify import verify


@hal.func
def total(p: hal.ConstPtr[hal.float32], i: hal.int32) -> hal.float32:
    a, b, c, d = hal.load(p, i, 4)
    return a + b + c + d


@hal.kernel(block=4)
def every_use(
    y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], h: hal.Ptr[hal.float16], n: hal.int32
) -> None:
    i = hal.global_idx(0)
    t = hal.thread_idx(0)
    tile = hal.shared(hal.float32, (4, 8))
    if i < n:
        a, b, c, d, e, f, g, last = hal.load(x, 8 * i, 8)
        hal.store(tile, (t, 0), last, g, f, e, d, c, b, a)
        p, q = hal.load(h, hal.int64(i) << 1, 2)
        hal.store(h, i * 2, q, p)
    hal.barrier()
    if i < n:
        row = x[i * 8 :]
        b, a = hal.load(tile, (t, 6), 2)
        hal.store(y[i * 4 :], 0, a, b, total(row, 4), total(x, 8 * i))


def test_every_use():
    x, h, y = np.arange(48, dtype="f4"), np.arange(12, dtype="f2"), np.zeros(24, "f4")
    interpret(every_use, y, x, h, vals=(6,), threads=6)
    rows = x.reshape(6, 8)
    sums = np.stack([rows[:, 4:].sum(1), rows[:, :4].sum(1)], 1)
    assert y.reshape(6, 4).tolist() == np.hstack([rows[:, :2], sums]).tolist()
    assert h.reshape(6, 2).tolist() == np.arange(12).reshape(6, 2)[:, ::-1].tolist()


@hal.kernel
def swapped(y: hal.Ptr[hal.int32], k: hal.int32, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        a, b = hal.load(y, 2 * i + k, 2)
        hal.store(y, 2 * i + k, b, a)


def run(kernel, array, vals):
    interpret(kernel, array, vals=vals, threads=vals[-1])


def test_an_index_that_is_no_multiple_raises():
    y = np.arange(9, dtype="i4")
    run(swapped, y, (2, 3))
    assert y.tolist() == [0, 1, 3, 2, 5, 4, 7, 6, 8]
    text = r"line \d+: a read of 2 elements of 'y'.*\(got 3\).*Begin at a multiple of 2"
    with pytest.raises(hal.KernelFault, match=text):
        run(swapped, y, (3, 2))


def test_every_element_is_within_the_buffer():
    with pytest.raises(hal.OutOfBounds, match=r"a read of 'y' by thread \(1, 0, 0\).*got 3; limit"):
        run(swapped, np.zeros(3, "i4"), (0, 2))
    with pytest.raises(hal.OutOfBounds, match="got 2147483646"):
        run(swapped, np.zeros(2, "i4"), (2**31 - 2, 1))


@hal.kernel
def along(y: hal.Ptr[hal.int32], k: hal.int32, w: hal.int32) -> None:
    rows = hal.view(y, (3, w))
    if hal.global_idx(0) == 0:
        a, b, c, d = hal.load(rows, (1, k), 4)
        y[0] = a + b + c + d


def test_a_vector_does_not_go_over_the_end_of_its_row():
    y = np.arange(18, dtype="i4")
    run(along, y, (2, 6))
    assert y[0] == 8 + 9 + 10 + 11
    with pytest.raises(hal.OutOfBounds, match=r"along axis 1 of 'rows'.*got 7; limit 0 to 5"):
        run(along, y[:15].copy(), (4, 6))


@hal.kernel
def beyond(y: hal.Ptr[hal.int32]) -> None:
    tile = hal.shared(hal.int32, 6)
    hal.store(tile, 4, 1, 2, 3, 4)


def test_an_end_that_is_known_to_be_outside_is_refused():
    with pytest.raises(hal.KernelSyntaxError, match="index 7 is outside of 'tile', of shape"):
        beyond.lower()


@pytest.mark.parametrize("arg", [(0, 3), (2, 2), (-1, 4), 4, (0, 32), [0, 2]])
def test_ir_with_another_place_is_refused(arg):
    with pytest.raises(InvalidKernel, match=r"arg must be \(k, n\)"):
        verify(_loading("PARAM", None, arg))


@pytest.mark.parametrize("memory", ["LOCAL", "TABLE"])
def test_ir_with_a_vector_of_other_memory_is_refused(memory):
    arg = ("t", 4) if memory == "LOCAL" else ("t", (1, 2))
    with pytest.raises(InvalidKernel, match="a vector is of a PARAM"):
        verify(_loading(memory, arg, (0, 2)))


def _loading(op, arg, place):
    nodes = [UOp("PARAM", hal.int32, (), 0), UOp("CONST", hal.int32, (), 0)]
    memory = nodes[0] if op == "PARAM" else UOp(op, hal.int32, (), arg)
    nodes += [] if op == "PARAM" else [memory]
    nodes.append(UOp("LOAD", hal.int32, (memory, nodes[1]), place))
    return Kernel("reads", Signature.parse("reads", "y: int32*"), tuple(nodes))

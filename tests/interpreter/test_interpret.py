"""Threads, control flow and atomics of the interpreter, its own cases beside the kit's."""

from types import FunctionType, SimpleNamespace

import numpy as np
import pytest
from counts import calls
from one_operation import one_operation

import hal_core as hal
from hal_core.dtypes import DTYPES, bfloat16, float32
from hal_core.signature import Signature
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel, UOp


def ints(size):
    return np.zeros(size, np.int32)


@hal.kernel
def once(total: hal.Ptr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        total[i] += 1


def test_more_threads_than_are_executed_together():
    total = ints(200_001)
    interpret(once, total, vals=(200_001,), threads=200_001)
    assert (total == 1).all()


@pytest.mark.parametrize("nothing", [{"threads": 0}, {"grid": (3, 0), "block": 2}])
def test_no_threads(nothing):
    total = ints(4)
    interpret(once, total, vals=(4,), **nothing)
    assert not total.any()


def test_a_fixed_block_is_the_only_one():
    kernel = once.lower()._replace(block=(4, 1, 1))
    total = ints(8)
    interpret(kernel, total, vals=(8,), threads=8)
    assert total.all()
    with pytest.raises(hal.InvalidArgument, match="fixes its block"):
        interpret(kernel, total, vals=(8,), threads=8, block=2)


# -- control flow: the kernel is also run as the Python it is


def as_python(kernel, size, *values):
    """Run the Python function itself, thread by thread."""
    out = [0] * size
    for thread in range(size):
        plain = SimpleNamespace(int32=int, global_idx=lambda axis: thread)  # noqa: B023
        FunctionType(kernel.__wrapped__.__code__, {"hal": plain})(out, *values)
    return out


@hal.kernel
def search(out: hal.Ptr[hal.int32], most: hal.int32) -> None:
    i = hal.global_idx(0)
    out[i] = -1
    if i % 5 == 3:
        return
    total = hal.int32(0)
    for a in range(most):
        if a == i:
            continue
        for b in range(a, most, 2):
            total += b
            if total > 40 + i:
                out[i] = total
                return
            if b == 3 * a:
                break
            if b % 3 == 0:
                continue
            total += 1
        else_way = total % 7
        if else_way == 5:
            break
    out[i] = total * 100 + i


@pytest.mark.parametrize("most", [0, 1, 7, 20])
@pytest.mark.parametrize("block", [1, 8, 64])
def test_control_flow(most, block):
    """Also tests/lang/test_differential.py, which runs one thread at a time."""
    out = ints(64)
    interpret(search, out, vals=(most,), threads=64, block=block)
    assert out.tolist() == as_python(search, 64, most)


RANGES = [
    ("int8", 0, 127, 100), ("int8", -128, 127, 127), ("int8", 127, -128, -128),
    ("uint8", 250, 255, 3), ("uint8", 0, 255, 255), ("uint8", 3, 3, 1), ("uint8", 4, 3, 1),
    ("int64", -(2**63), 2**63 - 1, 2**62), ("uint64", 0, 2**64 - 1, 2**63),
    ("int64", 2**63 - 1, -(2**63), -(2**63)), ("int32", 5, -5, -3), ("int32", 5, -5, 3),
]  # fmt: skip


@pytest.mark.parametrize(("name", "start", "stop", "step"), RANGES)
def test_ranges_at_the_ends_of_a_dtype(name, start, stop, step):
    """The turns are those of Python's range, which never wraps."""
    dtype, int32 = DTYPES[name], DTYPES["int32"]
    signature = Signature.parse("loop", f"out: {name}*, count: int32*")
    out, count = (UOp("PARAM", p.dtype, (), p.position) for p in signature.params)
    bounds = [UOp("CONST", dtype, (), value) for value in (start, stop, step)]
    zero, one = (UOp("CONST", int32, (), value) for value in (0, 1))
    loop = UOp("RANGE", dtype, tuple(bounds), "k")
    before = UOp("LOAD", int32, (count, zero))
    after = UOp("ADD", int32, (before, one))
    body = (
        before, UOp("STORE", None, (out, before, loop)),
        after, UOp("STORE", None, (count, zero, after)),
    )  # fmt: skip
    end = UOp("ENDRANGE", None, (loop,))
    uops = (out, count, *bounds, zero, one, loop, *body, end)
    got, turns = np.zeros(4, dtype.to_numpy()), ints(1)
    interpret(Kernel("loop", signature, uops), got, turns, threads=1)
    assert got[: turns[0]].tolist() == list(range(start, stop, step))


# -- memory


@hal.kernel
def tally(
    seen: hal.Ptr[hal.uint32], low: hal.Ptr[hal.int64], high: hal.Ptr[hal.int32],
    total: hal.Ptr[hal.float32], last: hal.Ptr[hal.int32], bits: hal.Ptr[hal.int32],
    x: hal.ConstPtr[hal.int32],
) -> None:  # fmt: skip
    i = hal.global_idx(0)
    rows = hal.view(bits, (2, 2))
    v = hal.atomic_load(x, i)
    hal.atomic_add(seen, v % 4, hal.uint32(1))
    hal.atomic_min(low, 0, hal.int64(v))
    hal.atomic_max(high, 0, v)
    hal.atomic_add(total, 0, hal.float32(v) * 0.5)
    last[i + 1] = hal.atomic_exchange(last, 0, i)
    hal.atomic_compare_exchange(high, 1, i, i + 1)
    hal.atomic_and(rows, (0, 0), v | 4)
    hal.atomic_or(rows, (0, 1), v & 6)
    hal.atomic_xor(rows, (1, 0), v)
    hal.atomic_store(rows, (1, 1), 5)


def test_atomics():
    x = np.array([3, 9, -4, 9, 0, 17, 6, 3], np.int32)
    seen, low, high = np.zeros(4, np.uint32), np.zeros(1, np.int64), np.array([-9, 2], np.int32)
    total, last, bits = np.zeros(1, np.float32), np.full(9, -1, np.int32), np.array([-1, 0, 0, 0])
    bits = bits.astype(np.int32)
    interpret(tally, seen, low, high, total, last, bits, x, threads=8, block=4)
    assert seen.tolist() == [2, 3, 1, 2]
    assert (low[0], high.tolist(), total[0]) == (-4, [17, 8], 21.5)
    assert last.tolist() == [7, -1, 0, 1, 2, 3, 4, 5, 6]
    reduced = [np.bitwise_and.reduce(x | 4), np.bitwise_or.reduce(x & 6), np.bitwise_xor.reduce(x)]
    assert bits.tolist() == [*reduced, 5]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_float_arrays(name):
    """A bfloat16 array may also be given as its bits."""
    dtype = DTYPES[name]
    kernel = one_operation("CAST", [dtype], float32)
    x = np.array([1, 1.5, -3, 0.125], dtype.to_numpy())
    y = np.zeros(4, np.float32)
    interpret(kernel, y, x, threads=4, block=4)
    assert y.tolist() == [1, 1.5, -3, 0.125]
    if dtype is bfloat16:
        interpret(kernel, y, x.view(np.uint16)[::-1].copy(), threads=4, block=4)
        assert y.tolist() == [0.125, -3, 1.5, 1]
    with pytest.raises(hal.InvalidArgument, match=f"wrong dtype .*{name}"):
        interpret(kernel, y, y, threads=4)


# -- speed


def test_small_kernels_take_some_thousand_calls():
    """A fuzzer needs a hundred kernels a second."""
    out = ints(64)
    interpret(search, out, vals=(7,), threads=64, block=8)
    assert calls(lambda: interpret(search, out, vals=(7,), threads=64, block=8)) < 4000

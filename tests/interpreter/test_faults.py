"""Undefined behaviour of the language raises, and the text names access, line and thread."""

import re
from pathlib import Path

import numpy as np
import pytest

import hal_core as hal
from hal_core.dtypes import bool_, float32, int32
from hal_core.signature import Signature
from hal_kernel import interpreter
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel, UOp

SIZE = 8


@hal.kernel
def shift(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], by: hal.int32) -> None:
    y[hal.global_idx(0)] = x[hal.global_idx(0) + by]


@hal.kernel
def scatter(y: hal.Ptr[hal.float32], p: hal.ConstPtr[hal.int32]) -> None:
    i = hal.global_idx(0)
    if i != 2:
        y[p[i]] = 1.0


@hal.kernel
def pass_on(y: hal.Ptr[hal.float32]) -> None:
    i = hal.global_idx(0)
    y[i] = 2.0
    y[i] = y[(i + 1) % 8]


@hal.kernel
def count_plainly(total: hal.Ptr[hal.int32]) -> None:
    hal.atomic_add(total, 0, 1)
    if hal.global_idx(0) == 3:
        total[0] = 5


@hal.kernel
def sum_all(total: hal.Ptr[hal.int32]) -> None:
    total[0] += 1


@hal.kernel
def reverse(y: hal.Ptr[hal.float32], wait: hal.int32, fill: hal.int32) -> None:
    tile = hal.shared(hal.float32, 8)
    i = hal.thread_idx(0)
    if i < fill:
        tile[i] = hal.float32(i)
    if wait != 0:
        hal.barrier()
    y[hal.global_idx(0)] = tile[7 - i]


@hal.kernel
def beyond(y: hal.Ptr[hal.float32], k: hal.int32) -> None:
    tile = hal.shared(hal.float32, 4)
    tile[hal.thread_idx(0) + k] = 1.0
    y[hal.global_idx(0)] = 0.0


@hal.kernel
def spin(y: hal.Ptr[hal.int32]) -> None:
    n = 0
    while n < 10:
        n = n % 10
    y[hal.global_idx(0)] = n


@hal.kernel
def wide(y: hal.Ptr[hal.float32], k: hal.int32) -> None:
    y[hal.global_idx(0) + k * 65536] = 1.0


@hal.kernel
def wide_by_a_variable(y: hal.Ptr[hal.int32], step: hal.int32, n: hal.int32) -> None:
    place = hal.int32(0)
    for _ in range(n):
        place += step
    old = place
    place = hal.int32(7)  # what `old` took before stays
    hashed = place * step * step  # wraps, and its bits are no sum
    y[hashed & 3] = 1
    y[old + 2] = hashed


def _line(kernel, text):
    """Return the number of the first line of the kernel that holds this text."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"def {kernel.name}("))
    return 1 + next(n for n, line in enumerate(lines) if n >= start and text in line)


def run(kernel, *bufs, **how):
    return lambda: interpret(kernel, *bufs, **how)


def floats():
    return np.zeros(SIZE, np.float32)


def ints(*values):
    return np.array(values, np.int32)


def who(thread, block=0):
    return f"thread ({thread}, 0, 0) of block ({block}, 0, 0)"


OUT, FAULT = hal.OutOfBounds, hal.KernelFault
CASES = [
    (run(shift, floats(), floats(), vals=(1,), threads=SIZE), OUT, _line(shift, "+ by"),
     f"out of bounds: a read of 'x' by {who(7)} (got 8; limit 0 to 7)"
     ". Guard the access, if i < n, or give a larger buffer"),
    (run(shift, floats(), floats(), vals=(-3,), threads=SIZE, block=2), OUT, _line(shift, "+ by"),
     f"out of bounds: a read of 'x' by {who(0)} (got -3; limit 0 to 7). "
     "Guard the access, if i >= 0: a negative index does not count from the end"),
    (run(scatter, floats(), ints(0, 9, 9, 3), threads=(2, 2), block=(1, 2)),
     OUT, _line(scatter, "y[p[i]]"),
     f"out of bounds: a write of 'y' by {who(0, 1)} (got 9; limit 0 to 7)"),
    (run(scatter, np.zeros(0, np.float32), ints(0), threads=1), OUT, _line(scatter, "y[p[i]]"),
     f"out of bounds: a write of 'y' by {who(0)} (got 0; it has no element)"),
    (run(beyond, floats(), vals=(1,), threads=8, block=4), OUT, _line(beyond, "] = 1.0"),
     f"out of bounds: a write of 'tile' by {who(3)} (got 4; limit 0 to 3)"),
    (run(wide, floats(), vals=(65536,), threads=1), FAULT, _line(wide, "] = 1.0"),
     f"the index of 'y' overflows int32 in {who(0)} (got 4294967296)"),
    (run(wide_by_a_variable, ints(0, 0, 0, 0), vals=(2**31 - 1, 2), threads=1), FAULT,
     _line(wide_by_a_variable, "old + 2"),
     f"the index of 'y' overflows int32 in {who(0)} (got 4294967296)"),
    (run(scatter, floats(), ints(0, 5, 0, 5), threads=4, block=2), FAULT,
     _line(scatter, "y[p[i]]"), f"a race for element 5 of 'y': a write by {who(1)} and a write "
     f"by {who(1, 1)}, with no order between them"),
    (run(pass_on, floats(), threads=SIZE, block=SIZE), FAULT, _line(pass_on, "y[(i + 1)"),
     f"a race for element 1 of 'y': a read by {who(0)} and a write by {who(1)}, with no order "
     "between them"),
    (run(count_plainly, ints(0), threads=SIZE), FAULT, _line(count_plainly, "total[0] = 5"),
     f"a race for element 0 of 'total': a write by {who(3)} and an atomic by several threads"),
    (run(sum_all, ints(0), threads=2), FAULT, _line(sum_all, "+= 1"),
     f"a race for element 0 of 'total': a write by {who(0)} and a read by several threads"),
    (run(reverse, floats(), vals=(0, 8), threads=8, block=8), FAULT, _line(reverse, "7 - i"),
     f"a race for element 7 of 'tile': a read by {who(0)} and a write by {who(7)}"),
    (run(reverse, np.zeros(16, np.float32), vals=(1, 7), threads=16, block=8),
     FAULT, _line(reverse, "7 - i"),
     f"a read of element 7 of 'tile', which nothing has written, by {who(0)}"),
    (run(spin, ints(0), threads=1, turns=1000), FAULT, _line(spin, "while n"),
     "the kernel does not end: its loops have taken too many turns (limit 1000)"),
]  # fmt: skip


def test_sums_that_wrap_and_are_no_index_are_right():
    y = np.zeros(4, np.int32)
    interpret(wide_by_a_variable, y, vals=(2**31 - 1, 0), threads=1)
    assert y.tolist() == [0, 0, 7, 1]


@pytest.mark.parametrize(("wrong", "kind", "line", "text"), CASES, ids=range(len(CASES)))
def test_fault(wrong, kind, line, text):
    with pytest.raises(kind, match=re.escape(f", line {line}: {text}")) as caught:
        wrong()
    assert type(caught.value) is kind
    assert isinstance(caught.value, hal.KernelFault)


def test_every_builtin_a_caller_would_catch():
    assert issubclass(hal.OutOfBounds, IndexError)
    assert issubclass(hal.FailedAssert, AssertionError)
    assert issubclass(hal.KernelFault, RuntimeError)


@hal.kernel
def unguarded(y: hal.Ptr[hal.int32], width: hal.int32, height: hal.int32) -> None:
    row = hal.global_idx(2) * height + hal.global_idx(1)
    y[row * width + hal.global_idx(0)] = 1


@pytest.mark.parametrize("threads", [10, (10,), (1, 7), (5, 3), (3, 3, 3), (1, 1, 5), (2, 1, 9)])
def test_a_guard_that_was_forgotten(threads):
    """The default block leaves surplus threads along each axis that has more than one."""
    width, height, depth = ((*threads, 1, 1) if isinstance(threads, tuple) else (threads, 1, 1))[:3]
    with pytest.raises(hal.OutOfBounds, match="a write of 'y'"):
        interpret(
            unguarded, np.zeros(width * height * depth, "i4"), vals=(width, height),
            threads=threads, races=False,
        )  # fmt: skip


@pytest.mark.parametrize("threads", [1, (64,), (8, 8), (4, 4, 4), (1, 64), (16, 1, 24)])
def test_whole_blocks_need_no_guard(threads):
    shape = ((*threads, 1, 1) if isinstance(threads, tuple) else (threads, 1, 1))[:3]
    y = np.zeros(shape, "i4")
    interpret(unguarded, y, vals=shape[:2], threads=threads)
    assert y.all()


@hal.kernel
def raise_flag(flag: hal.Ptr[hal.int32], y: hal.Ptr[hal.int32], plainly: hal.int32) -> None:
    i = hal.global_idx(0)
    y[i] = hal.atomic_load(flag, 0)
    if plainly == 0:
        hal.atomic_store(flag, 0, 1)
    elif i == 3:
        flag[0] = 1


@hal.kernel
def peek(total: hal.Ptr[hal.int32], y: hal.Ptr[hal.int32]) -> None:
    hal.atomic_add(total, 0, 1)
    y[hal.global_idx(0)] = total[0]


def test_a_race_of_an_atomic_says_how_to_read_or_write():
    with pytest.raises(hal.KernelFault) as caught:
        interpret(peek, ints(0), np.zeros(64, "i4"), threads=64)
    assert caught.value.fix.endswith("else read it with hal.atomic_load(p, i).")
    with pytest.raises(hal.KernelFault, match="a write by .* and an atomic read by") as caught:
        interpret(raise_flag, ints(0), np.zeros(64, "i4"), vals=(1,), threads=64)
    assert "else write it with hal.atomic_store(p, i, value), or" in caught.value.fix


# -- what is no fault


def test_a_barrier_orders_the_threads_of_a_block():
    y = np.zeros(24, np.float32)
    interpret(reverse, y, vals=(1, 8), threads=24, block=8)
    assert y.tolist() == [*range(7, -1, -1)] * 3


def test_races_can_be_let_pass():
    y = ints(0)
    interpret(sum_all, y, threads=2, races=False)
    assert y[0] == 1


def test_atomics_do_not_race():
    @hal.kernel
    def count(total: hal.Ptr[hal.int32], seen: hal.Ptr[hal.int32]) -> None:
        seen[hal.global_idx(0)] = hal.atomic_add(total, 0, 1)

    total, seen = ints(0), np.zeros(100, np.int32)
    interpret(count, total, seen, threads=100, block=10)
    assert total[0] == 100
    assert seen.tolist() == list(range(100))
    flag = ints(0)
    interpret(raise_flag, flag, seen, vals=(0,), threads=100, block=10)
    assert flag[0] == 1 and set(seen.tolist()) <= {0, 1}


def test_an_atomic_store_reads_nothing():
    """Memory that nothing has written may be stored to, and is then written."""

    @hal.kernel(block=(4, 1, 1))
    def first(y: hal.Ptr[hal.int32]) -> None:
        flag = hal.shared(hal.int32, 1)
        hal.atomic_store(flag, 0, 7)
        y[hal.thread_idx(0)] = hal.atomic_load(flag, 0)

    y = np.zeros(4, np.int32)
    interpret(first, y, threads=4)
    assert y.tolist() == [7] * 4


def test_elements_that_are_known_not_to_be_initialised():
    known = np.arange(SIZE) < 5
    for mask in (known, known.tolist()):
        interpret(
            shift, floats(), floats(), vals=(0,), threads=5, block=5, initialised=(None, mask)
        )
    text = "a read of element 5 of 'x', which nothing has written, by thread (5, 0, 0)"
    with pytest.raises(hal.KernelFault, match=re.escape(text)):
        interpret(
            shift, floats(), floats(), vals=(0,), threads=8, block=8, initialised=(None, known)
        )
    assert known.sum() == 5


# -- what the front end cannot say


def _kernel(*uops, text=""):
    return Kernel("raw", Signature.parse("raw", text), uops)


def test_a_failed_assert():
    index = UOp("SPECIAL", int32, (), ("global_idx", 0))
    two = UOp("CONST", int32, (), 2)
    small = UOp("LT", bool_, (index, two))
    said = UOp("ASSERT", None, (small,), "i is small", 7)
    kernel = _kernel(index, two, small, said)
    interpret(kernel, threads=2, block=2)
    text = "kernel raw, line 7: i is small, in thread (0, 0, 0) of block (2, 0, 0)."
    with pytest.raises(hal.FailedAssert, match=re.escape(text)):
        interpret(kernel, threads=4, block=1)


@pytest.mark.parametrize(
    ("leaves", "why"), [("RETURN", "has returned"), ("", "took another branch")]
)
def test_a_barrier_that_some_threads_pass_by(leaves, why, monkeypatch):
    """verify refuses these kernels; without it the interpreter finds the fault."""
    monkeypatch.setattr(interpreter, "verify", lambda kernel: None)
    index = UOp("SPECIAL", int32, (), ("thread_idx", 0))
    two = UOp("CONST", int32, (), 2)
    odd = UOp("GE", bool_, (index, two))
    branch = UOp("IF", None, (odd,))
    barrier = UOp("BARRIER", None, (), None, 3)
    end = UOp("ENDIF", None, (branch,))
    nodes = (branch, UOp("RETURN"), end, barrier) if leaves else (branch, barrier, end)
    kernel = _kernel(index, two, odd, *nodes)
    interpret(kernel, threads=2, block=2) if leaves else None
    number = 2 if leaves else 0
    text = f"kernel raw, line 3: a barrier that not all threads of a block reach: thread ({number},"
    with pytest.raises(hal.KernelFault, match=re.escape(text) + f".* {why}"):
        interpret(kernel, threads=4, block=4)


def test_a_kernel_that_is_wrong_is_refused():
    with pytest.raises(hal.InvalidKernel, match="ADD"):
        interpret(_kernel(UOp("ADD", float32, ())), threads=1)

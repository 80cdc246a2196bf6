"""Loops and kernels that are left early: LOOP, BREAK, CONTINUE, RETURN."""

from __future__ import annotations

import numpy as np
import pytest
from builder import Builder
from toolchains import Toolchain

from hal_core.dtypes import DTYPES, DType, int32
from hal_kernel.ir import UOp

GRID, BLOCK = (3, 2, 1), (4, 2, 1)
THREADS = 48


def linear(b: Builder) -> UOp:
    """The number of a thread in the grid above."""
    x, y = b.index(), b.special("global_idx", 1)
    return b.op("ADD", b.op("MUL", y, b.const(12)), x)


def run(toolchain: Toolchain, b: Builder, **arguments: object) -> np.ndarray:
    got = np.full(THREADS, -1, np.int32)
    toolchain.run(b.kernel(), {"r": got, **arguments}, GRID, BLOCK)
    return got


def test_while(toolchain: Toolchain) -> None:
    """Turns of `while n != 1`, which differ from thread to thread."""
    b = Builder("collatz", "r: int32*")
    i = linear(b)
    n, turns = b.var("n", b.op("ADD", i, b.const(1))), b.var("turns", b.const(0))
    loop = b.loop()
    with b.when(b.op("EQ", b.get(n), b.const(1))):
        b.break_(loop)
    branch = b.if_(b.op("EQ", b.op("AND", b.get(n), b.const(1)), b.const(0)))
    b.set(n, b.op("FLOORDIV", b.get(n), b.const(2)))
    b.else_(branch)
    b.set(n, b.op("ADD", b.op("MUL", b.get(n), b.const(3)), b.const(1)))
    b.end(branch)
    b.set(turns, b.op("ADD", b.get(turns), b.const(1)))
    b.end(loop)
    b.store("r", i, b.get(turns))
    expected = []
    for start in range(1, THREADS + 1):
        value, count = start, 0
        while value != 1:
            value, count = value // 2 if value % 2 == 0 else 3 * value + 1, count + 1
        expected.append(count)
    assert run(toolchain, b).tolist() == expected


@pytest.mark.parametrize("dtype", [int32, DTYPES["uint8"], DTYPES["int64"]], ids=str)
@pytest.mark.parametrize("step", [1, 3])
def test_break_and_continue_in_a_range(toolchain: Toolchain, dtype: DType, step: int) -> None:
    """A step of 3 with a stop known late is written as a count of turns."""
    b = Builder("leaves", f"r: int32*, stop: {dtype.name}")
    i = linear(b)
    total, limit = b.var("total", b.const(0)), b.cast(i, dtype)
    k = b.range(b.const(0, dtype), b.params["stop"], b.const(step, dtype))
    with b.when(b.op("GT", k, limit)):
        b.break_(k)
    with b.when(b.op("EQ", b.op("AND", k, b.const(1, dtype)), b.const(1, dtype))):
        b.continue_(k)
    b.set(total, b.op("ADD", b.get(total), b.cast(k, int32)))
    b.end(k)
    b.store("r", i, b.get(total))
    expected = [sum(k for k in range(0, 30, step) if k <= i and not k & 1) for i in range(THREADS)]
    assert run(toolchain, b, stop=30).tolist() == expected


def test_continue_in_a_loop_without_a_count(toolchain: Toolchain) -> None:
    b = Builder("skips", "r: int32*")
    i = linear(b)
    k, total = b.var("k", b.const(0)), b.var("total", b.const(0))
    loop = b.loop()
    b.set(k, b.op("ADD", b.get(k), b.const(1)))
    with b.when(b.op("EQ", b.op("MOD", b.get(k), b.const(3)), b.const(0))):
        b.continue_(loop)
    with b.when(b.op("GT", b.get(k), i)):
        b.break_(loop)
    b.set(total, b.op("ADD", b.get(total), b.get(k)))
    b.end(loop)
    b.store("r", i, b.get(total))
    expected = [sum(k for k in range(1, i + 1) if k % 3) for i in range(THREADS)]
    assert run(toolchain, b).tolist() == expected


def test_only_the_innermost_loop_is_left(toolchain: Toolchain) -> None:
    b = Builder("nested", "r: int32*")
    i = linear(b)
    total = b.var("total", b.const(0))
    outer = b.range(b.const(0), b.const(5), b.const(1))
    inner = b.loop()
    b.set(total, b.op("ADD", b.get(total), b.const(1)))
    with b.when(b.op("GE", b.get(total), b.op("MUL", outer, b.const(7)))):
        b.break_(inner)
    b.end(inner)
    b.set(total, b.op("ADD", b.get(total), i))
    b.end(outer)
    b.store("r", i, b.get(total))
    expected = []
    for i_ in range(THREADS):
        count = 0
        for outer_ in range(5):
            while True:
                count += 1
                if count >= outer_ * 7:
                    break
            count += i_
        expected.append(count)
    assert run(toolchain, b).tolist() == expected


def test_return_ends_one_thread(toolchain: Toolchain) -> None:
    """At the top, in an if, in a loop and in a loop's if; the others go on."""
    b = Builder("returns", "r: int32*")
    i = linear(b)
    with b.when(b.op("EQ", b.op("MOD", i, b.const(4)), b.const(0))):
        b.return_()
    b.store("r", i, b.const(1))
    k = b.range(b.const(0), b.const(20), b.const(1))
    with b.when(b.op("EQ", b.op("MUL", k, k), i)):
        b.store("r", i, b.op("ADD", k, b.const(100)))
        b.return_()
    loop = b.loop()
    with b.when(b.op("LE", b.const(0), k)):
        b.break_(loop)
    b.return_()
    b.end(loop)
    b.end(k)
    b.store("r", i, b.const(2))
    b.return_()
    roots = {k * k: k for k in range(20)}
    expected = [-1 if i % 4 == 0 else roots[i] + 100 if i in roots else 2 for i in range(THREADS)]
    assert run(toolchain, b).tolist() == expected


def test_a_value_read_before_a_loop_stays_what_it_was(toolchain: Toolchain) -> None:
    b = Builder("order", "r: int32*, m: int32*")
    i = linear(b)
    v = b.var("v", i)
    place = b.op("ADD", i, b.const(0))
    before, loaded = b.get(v), b.load("m", place)
    loop = b.loop()
    b.set(v, b.op("ADD", b.get(v), b.const(1)))
    b.store("m", place, b.get(v))
    with b.when(b.op("GT", b.get(v), b.const(60))):
        b.break_(loop)
    b.end(loop)
    b.store("r", i, b.op("ADD", b.op("MUL", before, b.const(100)), loaded))
    m = np.arange(THREADS, dtype=np.int32) % 7
    expected = np.arange(THREADS) * 100 + m
    assert run(toolchain, b, m=m).tolist() == expected.tolist()
    assert m.tolist() == [61] * THREADS


def test_an_assert_is_not_tested_outside_of_checked_mode(toolchain: Toolchain) -> None:
    b = Builder("asserts", "r: int32*")
    i = linear(b)
    small = b.op("LT", i, b.const(3))
    b.add("ASSERT", None, small, arg="i < 3")
    b.store("r", i, b.cast(small, int32))
    assert run(toolchain, b).tolist() == [1, 1, 1] + [0] * 45

"""LLVM IR: guards, clamps, strides and joined blocks do what the interpreter does."""

from __future__ import annotations

import ctypes
import itertools
import math
import operator
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builder import Builder
from counts import calls
from toolchains import LLVM

import hal_core as hal
from hal_core.dtypes import float16, float32, int64
from hal_cpu.vectors import LLVMRenderer
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel, UOp

# mypy: disable-error-code="no-untyped-def"


# -- vectors


@hal.kernel
def product(
    c: hal.Ptr[hal.float32], a: hal.ConstPtr[hal.float32], b: hal.ConstPtr[hal.float32],
    n: hal.int32,
):  # fmt: skip
    column = hal.global_idx(0)
    row = hal.global_idx(1)
    if row < n and column < n:
        total = 0.0
        for k in range(n):
            total += a[row * n + k] * b[k * n + column]
        c[row * n + column] = total


@hal.kernel
def sums(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], w: hal.int32, h: hal.int32):
    i = hal.block_idx(0) * hal.block_dim(0)
    i += hal.thread_idx(0)
    if i < w:
        total = hal.float32(0)
        j = 0
        while j < h:
            value = x[j * w + i]
            j += 1
            if value < 0.5:
                continue
            total += value
        y[i] = total


# -- the end of the loop over threads

COMPARE = {"LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
           "EQ": operator.eq, "NE": operator.ne}  # fmt: skip
NUMBERS = [-(2**31), -(2**31) + 1, -3, -1, 5, 6, 7, 11, 12, 13, 2**31 - 2, 2**31 - 1]
NUMBERS += [65535, 65536, 65537, *range(13), *range(5)]


FACTORS = [1, 2, 3, 4, 5, 2**28, 2**29, 2**30, -2]
OPERANDS = {"MUL": FACTORS, "FLOORDIV": FACTORS, "TRUNCDIV": FACTORS,
            "SHL": [0, 1, 2, 29, 30, 31, 33], "SHR": [0, 1, 2, 31, 33],
            "AND": [-4, -2, -1, -(2**31), 3], "ADD": [-7, 3, 2**31 - 5],
            "SUB": [-3, 7, 2**31 - 9]}  # fmt: skip
PARAMETERS = ("ADD", "SUB", "MUL", "FLOORDIV")
STEPS: dict[str, Any] = {
    "ADD": lambda a, b: wrapped(a + b),
    "SUB": lambda a, b: wrapped(a - b),
    "MUL": lambda a, b: wrapped(a * b),
    "FLOORDIV": lambda a, b: wrapped(a // b) if b else 0,
    "TRUNCDIV": lambda a, b: wrapped(abs(a) // abs(b) * (1 if a * b > 0 else -1)) if b else 0,
    "SHL": lambda a, b: wrapped(a << b % 32),
    "SHR": lambda a, b: a >> b % 32,
    "AND": operator.and_,
}


def wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


Place = dict[tuple[str, int], int]  # a SPECIAL -> its value for one thread
Number = Any  # a function of a Place


class Guarded:
    """A store under conditions on indices, parameters and constants, as IFs and early returns.

    With more than one round it is in a loop, whose counter the conditions have too.
    """

    BLOCKS = ((6, 1, 1), (3, 2, 1), (2, 1, 3), (1, 1, 1))
    GRID = (2, 2, 1)

    def __init__(self, seed: int, rounds: int = 1) -> None:
        self.rng, self.rounds = random.Random(seed), rounds
        rng = self.rng
        self.b = b = Builder("guarded", "y: int32*, m: int32, n: int32")
        self.block = rng.choice(self.BLOCKS)
        self.draw_values()
        self.number: dict[UOp, Number] = {
            b.params["m"]: lambda at: self.values["m"],
            b.params["n"]: lambda at: self.values["n"],
        }
        self.along_x = [self.special(kind, 0) for kind in ("thread_idx", "global_idx")]
        self.others = [self.special("global_idx", 1), self.special("thread_idx", 2)]
        self.others += [self.special("block_idx", 0), b.params["m"], b.params["n"]]
        self.tests: list[Number] = []
        blocks, unused = [], b.var("unused", b.const(0))
        if rounds > 1:
            self.counter = b.range(b.const(0), b.const(rounds), b.const(1))
            self.number[self.counter] = lambda at: at["k", 0]
            blocks.append(self.counter)
        for _ in range(rng.randint(1, 3)):
            condition, holds = self.condition(2)
            returns = rng.random() < 0.4 and rounds == 1
            if returns:
                self.tests.append(lambda at, holds=holds: not holds(at))
                with b.when(condition):
                    b.return_()
            else:
                self.tests.append(holds)
                blocks.append(b.if_(condition))
            b.set(unused, b.const(1))
        place = b.special("global_idx", 2)
        for axis in (1, 0):
            size = b.const(self.GRID[axis] * self.block[axis])
            place = b.op("ADD", b.op("MUL", place, size), b.special("global_idx", axis))
        if rounds > 1:
            place = b.op("ADD", b.op("MUL", place, b.const(rounds)), self.counter)
        b.store("y", place, b.op("ADD", b.load("y", place), b.const(1)))
        for block in reversed(blocks):
            b.end(block)

    def draw_values(self) -> None:
        self.values = {name: self.rng.choice(NUMBERS) for name in "mn"}

    def special(self, kind: str, axis: int) -> UOp:
        made = self.b.special(kind, axis)
        self.number[made] = lambda at: at[kind, axis]
        return made

    def constant(self) -> UOp:
        value = self.rng.choice(NUMBERS)
        made = self.b.const(value)
        self.number[made] = lambda at: value
        return made

    def operand(self, some: list[UOp]) -> UOp:
        """One of `some`, or what steps make of it: factors, quotients, sums, differences."""
        made = self.rng.choice(some)
        if some is self.along_x:
            for _ in range(self.rng.choice([0, 0, 0, 1, 1, 2])):
                made = self.step(made)
            if self.rounds > 1:
                made = self.counted(made)
        for op, change in (("ADD", operator.add), ("SUB", operator.sub)):
            if self.rng.random() < 0.4:
                pair = (made, self.constant())
                if op == "ADD" and self.rng.random() < 0.3:
                    pair = pair[::-1]
                made = self.b.op(op, *pair)
                self.number[made] = self.applied(lambda a, b, f=change: wrapped(f(a, b)), *pair)
        return made

    def counted(self, made: UOp) -> UOp:
        """The sum of a number and of a product of the counter; or their difference."""
        product = self.counter
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            some = [self.b.params["m"], self.b.params["n"], self.constant(), self.constant()]
            pair = self.rng.sample([product, self.rng.choice(some)], 2)
            product = self.b.op("MUL", *pair)
            self.number[product] = self.applied(STEPS["MUL"], *pair)
        op = self.rng.choice(["ADD", "ADD", "SUB"])
        pair = [made, product] if op == "SUB" else self.rng.sample([made, product], 2)
        result = self.b.op(op, *pair)
        self.number[result] = self.applied(STEPS[op], *pair)
        return result

    def step(self, made: UOp) -> UOp:
        op = self.rng.choice([*STEPS])
        number = self.b.const(value := self.rng.choice(OPERANDS[op]))
        self.number[number] = lambda at: value
        if op in PARAMETERS and self.rng.random() < 0.3:
            number = self.b.params[self.rng.choice("mn")]
        pair = made, number
        if op in ("MUL", "ADD") and self.rng.random() < 0.3:
            pair = pair[::-1]
        result = self.b.op(op, *pair)
        self.number[result] = self.applied(STEPS[op], *pair)
        return result

    def applied(self, function: Any, *sources: UOp) -> Number:
        parts = [self.number[source] for source in sources]
        return lambda at: function(*(part(at) for part in parts))

    def condition(self, depth: int) -> tuple[UOp, Number]:
        kind = self.rng.choice(["AND", "AND", "OR", "NOT"]) if depth else ""
        if kind and self.rng.random() < 0.6:
            (first, a), (second, b) = (self.condition(depth - 1) for _ in "ab")
            if kind == "NOT":
                return self.b.op("NOT", first), lambda at: not a(at)
            both = operator.and_ if kind == "AND" else operator.or_
            return self.b.op(kind, first, second), lambda at: both(a(at), b(at))
        left = self.operand(self.along_x if self.rng.random() < 0.7 else self.others)
        right = self.operand(self.others) if self.rng.random() < 0.7 else self.constant()
        op = self.rng.choice([*COMPARE, "LT", "LE", "GT", "GE"])
        compare = self.applied(COMPARE[op], left, right)
        pair = [left, right]
        if self.rng.random() < 0.3:
            pair = [self.b.cast(side, int64) for side in pair]
        if self.rng.random() < 0.5:
            compare = self.applied(COMPARE[op], right, left)
            pair.reverse()
        return self.b.op(op, *pair), compare

    def expected(self) -> list[int]:
        """One for each thread that stores, in rows of x, then y, then z, and in each round."""
        found = []
        shape = [blocks * threads for blocks, threads in zip(self.GRID, self.block, strict=True)]
        for index in itertools.product(*map(range, reversed(shape))):
            at: Place = {}
            for axis, number in enumerate(reversed(index)):
                at["global_idx", axis] = number
                at["block_idx", axis], at["thread_idx", axis] = divmod(number, self.block[axis])
            for at["k", 0] in range(self.rounds):
                found.append(int(all(test(at) for test in self.tests)))
        return found


@pytest.mark.parametrize("rounds", [1, 4])
def test_no_thread_runs_that_should_not_and_every_other_does(llvm: LLVM, rounds: int) -> None:
    some = 0
    for seed in range(40):
        made = Guarded(seed, rounds)
        kernel = made.b.kernel(made.block if seed % 2 else None)
        function = llvm.function(kernel)
        for _ in range(24):
            made.draw_values()
            expected = made.expected()
            got = np.zeros(len(expected), np.int32)
            llvm.call(function, kernel, {"y": got, **made.values}, made.GRID, made.block)
            some += 0 < sum(expected) < len(expected)
    assert some > 50


@hal.kernel
def offset_wraps(y: hal.Ptr[hal.int32], n: hal.int32, offset: hal.int32):
    i = hal.global_idx(0)
    k = i + 2 + offset - 3
    if k < n or n == k + 5:
        y[i] = 1
    elif k >= 3:
        y[i] = 2 + min(k, n)


def test_a_guard_whose_sum_wraps(llvm: LLVM) -> None:
    kernel = offset_wraps.lower()
    function = llvm.function(kernel)
    for n in (-(2**31), -1, 0, 5, 2**31 - 6, 2**31 - 1):
        for offset in (-(2**31), -(2**31) + 1, -(2**31) + 4, -3, 0, 9, 2**31 - 9, 2**31 - 1):
            y, expected = np.zeros((2, 40), np.int32)
            llvm.call(function, kernel, {"y": y, "n": n, "offset": offset}, (2, 1, 1), (20, 1, 1))
            interpret(kernel, expected, vals=(n, offset), grid=2, block=20)
            np.testing.assert_array_equal(y, expected, f"{n} {offset}")


# -- guards that cost nothing

Floats, Inputs = hal.Ptr[hal.float32], hal.ConstPtr[hal.float32]


@hal.kernel
def below(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2.0 * x[i]


@hal.kernel
def returned(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n:
        return
    value = 2.0 * x[i]
    y[i] = value


@hal.kernel
def up_to(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    last = n // 2 - 1
    if i <= last:
        y[i] = 2.0 * x[i]


@hal.kernel
def between(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if 0 < i < n - 1:
        y[i] = x[i - 1] + x[i + 1]


@hal.kernel
def neither(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if not (i < 1 or i + 1 >= n):
        y[i] = x[i - 1] + x[i + 1]


@hal.kernel
def shifted(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0) + 3
    if n > i:
        y[i] = 2.0 * x[i]


@hal.kernel
def by_blocks(y: Floats, x: Inputs, n: hal.int32):
    i = hal.block_idx(0) * hal.block_dim(0) + hal.thread_idx(0)
    if i < n:
        y[i] = 2.0 * x[i]


@hal.kernel(block=(64, 1, 1))
def by_fixed_blocks(y: Floats, x: Inputs, n: hal.int32):
    i = hal.thread_idx(0) + 64 * hal.block_idx(0)
    if i < n:
        y[i] = 2.0 * x[i]


@hal.kernel
def interior(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < 1 or i >= w - 1:
        return
    if j < 1 or j >= h - 1:
        return
    c = j * w + i
    y[c] = x[c - 1] + x[c + 1] + x[c - w] + x[c + w]


@hal.kernel
def triangle(y: Floats, x: Inputs, w: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    total = hal.float32(0)
    if i <= j and j < w and j % 2 == 0:
        total += x[j * w + i]
        y[j * w + i] = total


@hal.kernel
def wide(y: Floats, x: Inputs, n: hal.int64):
    i = hal.int64(hal.global_idx(0))
    if i + 1 < n:
        y[i] = x[i + 1]


@hal.kernel
def by_fours(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if 4 * i < n:
        y[i] = 2.0 * x[i]


@hal.kernel
def by_steps(y: Floats, x: Inputs, n: hal.int32, k: hal.int32):
    i = hal.global_idx(0)
    if n > i * k + 3:
        y[i] = 2.0 * x[i]


@hal.kernel
def halved(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i // 2 < n and (i << 1) >= n:
        y[i] = 2.0 * x[i]


@hal.kernel
def in_pairs(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i >> 1 < n and (i & -4) < n:
        y[i] = 2.0 * x[i]


@hal.kernel
def counted(y: Floats, x: Inputs, n: hal.uint32):
    i = hal.uint32(hal.global_idx(0))
    if i < n:
        y[hal.int32(i)] = 2.0 * x[hal.int32(i)]


@hal.kernel
def by_rows(y: Floats, x: Inputs, w: hal.int32, n: hal.int32):
    c = hal.global_idx(1) * w + hal.global_idx(0)
    if c < n:
        y[c] = 2.0 * x[c]


SPELLINGS = [
    below, returned, up_to, between, neither, shifted, by_blocks, by_fixed_blocks, interior,
    triangle, wide, by_fours, by_steps, halved, in_pairs, counted, by_rows,
]  # fmt: skip


@pytest.mark.parametrize("kernel", SPELLINGS, ids=lambda kernel: kernel.name)
def test_a_guard_lets_its_threads_through(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function, names = llvm.function(lowered), [one.name for one in lowered.signature.values]
    x = np.random.default_rng(0).integers(-99, 99, 4000).astype("f4")
    for n in (0, 1, 7, 30, 64, 100):
        for block in [(64, 1, 1)] if lowered.block else [(64, 1, 1), (5, 1, 1)]:
            y, expected = np.full((2, x.size), 5, "f4")
            rows = 39 if ("global_idx", 1) in [node.arg for node in lowered.uops] else 1
            grid, vals = (-(-100 // block[0]), rows, 1), (n, min(n, 39))[: len(names)]
            llvm.call(
                function,
                lowered,
                {"y": y, "x": x, **dict(zip(names, vals, strict=False))},
                grid,
                block,
            )
            interpret(kernel, expected, x, vals=vals, grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"{n} in {block}")


@hal.kernel
def by_huge_numbers(y: hal.Ptr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    k = hal.int64(i + n)
    y[i] = 1 if k >> 63 > 1 else 2
    if k // (2**63 - 1) > 1 or k & -(2**62) > 1:
        y[i] = 3


@pytest.mark.parametrize("n", [0, 5, -(2**31)])
def test_a_test_of_an_index_that_is_divided_by_a_huge_number(llvm: LLVM, n: int) -> None:
    lowered = by_huge_numbers.lower()
    y, expected = np.zeros((2, 64), "i4")
    llvm.run(lowered, {"y": y, "n": n}, (2, 1, 1), (32, 1, 1))
    interpret(by_huge_numbers, expected, vals=(n,), grid=2, block=32)
    np.testing.assert_array_equal(y, expected)


@hal.kernel
def clamped_sum(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    y[i] = x[min(max(i - w * h, 0), 127)] + x[min(max(i - i // w * h, 0), 127)]


@pytest.mark.parametrize(("w", "h"), [(5, 3), (1372953684, 1 << 30), (4, 2147483646), (9, 1 << 30)])
def test_an_index_is_clamped_after_its_sum_has_wrapped(llvm: LLVM, w: int, h: int) -> None:
    lowered, x = clamped_sum.lower(), np.arange(128, dtype="i4")
    y, expected = np.zeros((2, 128), "i4")
    llvm.run(lowered, {"y": y, "x": x, "w": w, "h": h}, (2, 1, 1), (64, 1, 1))
    interpret(clamped_sum, expected, x, vals=(w, h), grid=2, block=64)
    np.testing.assert_array_equal(y, expected)


@hal.kernel
def unread(x: hal.ConstPtr[hal.int32]):
    i = hal.global_idx(0)
    total = 0
    for _ in range(20):
        total += x[i]


def test_a_kernel_that_does_nothing_but_read_is_compiled(llvm: LLVM) -> None:
    llvm.run(unread.lower(), {"x": np.arange(64, dtype="i4")}, (2, 1, 1), (32, 1, 1))


@hal.kernel
def roots_of_rows(y: hal.Ptr[hal.uint32], x: hal.ConstPtr[hal.uint32], w: hal.int32, n: hal.int32):
    """Find the root of a number that threads of a row share; the second store keeps its load."""
    k = hal.global_idx(0)
    if k < n:
        j = k // w
        v = hal.uint16(x[j])
        r = hal.uint16(0)
        for _ in range(16):
            if (r + hal.uint16(1)) * (r + hal.uint16(1)) <= v:
                r += hal.uint16(1)
        y[k] = hal.uint32(k)
        y[k] = y[k] + hal.uint32(r)


def test_a_number_that_threads_share_and_that_is_made_of_itself_twice_is_compiled_in_time(
    llvm: LLVM,
) -> None:
    """LLVM asked about each of the two, in each of the iterations: 2**32 times."""
    lowered, x = roots_of_rows.lower(), np.arange(257, dtype="u4") ** 2 + 3
    for w in (1, 50, 64, 1000):
        y, expected = np.zeros((2, 256), "u4")
        llvm.run(lowered, {"y": y, "x": x, "w": w, "n": 250}, (4, 1, 1), (64, 1, 1))
        interpret(roots_of_rows, expected, x, vals=(w, 250), grid=4, block=64)
        np.testing.assert_array_equal(y, expected)


@hal.kernel
def made_of_itself(y: hal.Ptr[hal.int32], w: hal.int32, n: hal.int32):
    """Multiply a quotient and a counter by themselves, and compare two sums that are alike."""
    k = hal.global_idx(0)
    if k < n:
        power, more, less, found = k // w, k, k, k % w
        for _ in hal.unroll(26):
            power *= power
            more += more
            less += less
        if more < less:
            more = less + 1
        for c in range(3):
            v = c
            for _ in hal.unroll(26):
                v *= v
            if k - v >= 0:
                found += 1
        y[k] = power + more + found


def test_numbers_that_are_made_of_themselves_26_times_are_compiled_in_time(llvm: LLVM) -> None:
    """Each was looked at once for every way to it."""
    lowered = made_of_itself.lower()
    for w in (1, 7, 100):
        y, expected = np.zeros((2, 256), "i4")
        llvm.run(lowered, {"y": y, "w": w, "n": 250}, (4, 1, 1), (64, 1, 1))
        interpret(made_of_itself, expected, vals=(w, 250), grid=4, block=64)
        np.testing.assert_array_equal(y, expected)


# -- elements that lie several apart


@hal.kernel
def planes(y: hal.Ptr[hal.uint8], x: hal.ConstPtr[hal.uint8], w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    c = hal.global_idx(2)
    if i < w and j < h and c < 3:
        y[(c * h + j) * w + i] = x[(j * w + i) * 3 + c]


def test_colours_beside_each_other_are_sorted(llvm: LLVM) -> None:
    lowered = planes.lower()
    for w, h in ((1, 1), (7, 3), (64, 2), (77, 5)):
        x = np.random.default_rng(w).integers(0, 255, 3 * w * h, dtype="u1")
        y = np.zeros_like(x)
        llvm.run(lowered, {"y": y, "x": x, "w": w, "h": h}, (2, h, 3), (64, 1, 1))
        np.testing.assert_array_equal(y.reshape(3, h, w), x.reshape(h, w, 3).transpose(2, 0, 1))


def compared(dtype: Any, w: int) -> hal.KernelFunction:
    @hal.kernel
    def compared(
        y: hal.Ptr[hal.int32], a: hal.ConstPtr[dtype], b: hal.ConstPtr[dtype], n: hal.int32
    ):
        """Count letters in which words differ, and carries; find the least of the greater ones."""
        i = hal.global_idx(0)
        if i < n:
            count, carry = 0, 0
            low = dtype(100)
            for k in range(w):
                if a[w * i + k] != b[w * i + k]:
                    count += 1
                s = a[i * w + k] + b[i * w + k]
                carry += 1 if s < a[w * i + k] else 0
                low = min(low, max(a[w * i + k], b[w * i + k]))
            y[i] = 1000 * count + 10 * carry + hal.int32(low > dtype(2))

    return compared


@pytest.mark.parametrize("w", [3, 4, 8])
@pytest.mark.parametrize("name", ["uint8", "int16", "uint32", "int64", "float32", "float64"])
def test_elements_that_lie_apart_are_compared(llvm: LLVM, name: str, w: int) -> None:
    kernel = compared(getattr(hal, name), w)
    generator = np.random.default_rng(w)
    a, b = (generator.integers(0, 3, 300 * w).astype(name) for _ in range(2))
    if name.startswith("float"):
        a[::7], b[::5], a[4::9], b[4::9] = np.nan, np.nan, -0.0, 0.0
    else:
        a[::7] = np.iinfo(name).max
    y, expected = np.zeros((2, 300), "i4")
    llvm.run(kernel.lower(), {"y": y, "a": a, "b": b, "n": 297}, (10, 1, 1), (30, 1, 1))
    interpret(kernel, expected, a, b, vals=(297,), grid=10, block=30)
    np.testing.assert_array_equal(y, expected)


# -- elements that all threads of a row load

SHAPES = [(1, 1), (2, 3), (3, 1), (5, 2), (33, 4), (70, 3)]


@hal.kernel
def weighted(y: Floats, x: Inputs, weights: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if 0 < i < w - 1 and 0 < j < h - 1:
        total = hal.float32(0)
        for dj in range(-1, 2):
            for di in range(2, -1, -1):
                total += weights[3 * dj + di + 3] * x[(j + dj) * w + i + 1 - di]
        y[j * w + i] = total


@hal.kernel
def weighted_at_rims(y: Floats, x: Inputs, weights: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = weights[0]
        for k in range(-4, 5, 4):
            if weights[k + 4] > 4 and i != 2:
                total += weights[j % 9]
            total += weights[k + 4] * x[j * w + min(max(i + k, 0), w - 1)]
        y[j * w + i] = total


@pytest.mark.parametrize("kernel", [weighted, weighted_at_rims], ids=lambda kernel: kernel.name)
def test_elements_are_loaded_only_where_a_thread_loads_them(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    random = np.random.default_rng(0)
    weights = random.integers(0, 9, 9).astype(np.float32)
    nowhere = np.frombuffer((ctypes.c_float * 1).from_address(64), np.float32)
    for w, h in [*SHAPES, (40, 5), (0, 3), (3, 0), (-5, 4)]:
        x = random.integers(-9, 9, max(1, w * h)).astype(np.float32)
        expected, got = np.zeros_like(x), np.zeros_like(x)
        values = {"x": x, "weights": weights, "w": np.int32(w), "h": np.int32(h)}
        interpret(lowered, expected, x, weights, vals=(w, h), grid=(6, 3, 1), block=(8, 2, 1))
        least = 1 if kernel is weighted_at_rims else 3
        if min(w, h) < least:
            values["weights"] = nowhere
        llvm.call(function, lowered, {"y": got, **values}, (6, 3, 1), (8, 2, 1))
        assert got.tolist() == expected.tolist(), (w, h)


# -- loops that a fixed block makes needless


# -- the middle of a row


@hal.kernel
def clamped(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = hal.float32(0)
        for k in hal.unroll(-2, 3):
            total += x[j * w + min(max(i + k, 0), w - 1)]
        y[j * w + i] = total


@hal.kernel
def clamped_in_a_loop(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i >= w or j >= h:
        return
    total = hal.float32(0)
    for dy in range(-1, 2):
        for dx in range(2, -2, -1):
            row = max(0, min(h - 1, j + dy))
            total += x[row * w + max(0, min(w - 1, i - dx))]
    y[j * w + i] = total


@hal.kernel
def periodic(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        here = x[j * w + (i + 1) % w] - x[j * w + (i - 1) % w]
        y[j * w + i] = here + x[j * w + (i - 1 + w) % w] - 3.0 * x[j * w + (i + w - 2) % w]


@hal.kernel
def periodic_of_33(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < 33 and j < h and w >= 33:
        y[j * 33 + i] = x[j * 33 + (i - 1 + 33) % 33] + 2.0 * x[j * 33 + (i + 34) % 33]


@hal.kernel
def padded(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = hal.float32(0)
        for k in range(-1, 3):
            if 0 <= i + k < w:
                total += x[j * w + i + k]
        y[j * w + i] = total


@hal.kernel
def edged(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        c = j * w + i
        if 0 < i < w - 1 and 0 < j < h - 1:
            y[c] = x[c - 1] + x[c + 1] + x[c - w] + x[c + w]
        else:
            y[c] = x[c]


@hal.kernel
def chosen(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        c = j * w + i
        left = x[c - 1] if i > 0 else hal.float32(1)
        if i == 3 or i == w - 1:
            y[c] = hal.float32(7)
        else:
            y[c] = left + x[j * w + (i + 1 if i + 1 != w else 0)]


@hal.kernel
def half_each(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if j < h and i <= w - 1:
        if i < w // 2:
            y[j * w + i] = 2.0 * x[j * w + i]
        else:
            y[j * w + i] = 3.0 * x[j * w + i]


@hal.kernel
def by_numbered_blocks(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    """The launch gives another block than the kernel counts with, in most tests."""
    i = hal.block_idx(0) * 64 + hal.thread_idx(0) - 1
    if 0 <= i < w and hal.thread_idx(0) < 64 and hal.global_idx(1) == 0 and h > 0:
        y[i] = 2.0 * x[i]


@hal.kernel(block=(64, 1, 1))
def block_sums(y: Floats, x: Inputs, n: hal.int32):
    part = hal.shared(hal.float32, 64)
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    part[t] = x[i] if i < n else hal.float32(0)
    hal.barrier()
    if t < 32:
        part[t] += part[t + 32]
    hal.barrier()
    y[i] = part[t]


def test_rows_across_the_end_of_the_data(llvm: LLVM) -> None:
    kernel = block_sums.lower()
    function = llvm.function(kernel)
    x = np.arange(200, dtype=np.float32)
    for n in (-1, 0, 1, 63, 64, 65, 127, 128, 192, 200):
        got, expected = np.ones(192, np.float32), np.zeros(192, np.float32)
        interpret(kernel, expected, x, vals=(n,), grid=(3, 1, 1), block=(64, 1, 1))
        values = {"x": x[: max(n, 1)].copy(), "n": np.int32(n)}
        llvm.call(function, kernel, {"y": got, **values}, (3, 1, 1), (64, 1, 1))
        assert got.tolist() == expected.tolist(), n


@hal.kernel(block=(32, 1, 1))
def shares(y: Floats, x: Inputs, n: hal.int32, offset: hal.int32):
    total = hal.float32(0)
    for k in range(4):
        i = hal.block_idx(0) * 128 + offset + hal.thread_idx(0) + k * 32
        if i < n:
            total += x[i & 63]
    y[hal.global_idx(0)] = total


def test_blocks_beyond_the_end_load_nothing(llvm: LLVM) -> None:
    """Their masked loads of memory that does not exist took 200 times as long as all others."""
    kernel = shares.lower()
    function = llvm.function(kernel)
    x = np.arange(64, dtype=np.float32)
    for n in (-(2**31), -5, 0, 1, 100, 128, 250, 2**31 - 1):
        for offset in (-(2**31), -130, 0, 77, 2**31 - 300, 2**31 - 40):
            got, expected = np.ones(96, np.float32), np.zeros(96, np.float32)
            interpret(kernel, expected, x, vals=(n, offset), grid=(3, 1, 1), block=(32, 1, 1))
            values = {"x": x, "n": np.int32(n), "offset": np.int32(offset)}
            llvm.call(function, kernel, {"y": got, **values}, (3, 1, 1), (32, 1, 1))
            assert got.tolist() == expected.tolist(), (n, offset)


@hal.kernel
def by_fours_in_a_loop(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    base = 4 * hal.global_idx(0)
    if hal.global_idx(1) == 0:
        for k in range(4):
            if base + k < w * h:
                y[base + k] = 2.0 * x[base + k]


@hal.kernel
def written_out_by_fours(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    for k in hal.unroll(4):
        i = k + hal.global_idx(0) * 4
        if hal.global_idx(1) == 0 and i < w * h:
            y[i] = 2.0 * x[i]


@hal.kernel
def by_strides(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    for k in range(3):
        i = hal.global_idx(0) + k * hal.grid_dim(0) * hal.block_dim(0)
        if hal.global_idx(1) == 0 and i < w * h:
            y[i] = 2.0 * x[i]


@hal.kernel
def by_tiles(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    first = hal.block_idx(0) * hal.block_dim(0) * 2 + hal.thread_idx(0)
    if hal.global_idx(1) == 0:
        for k in range(2):
            i = first + k * hal.block_dim(0)
            if i < w * h:
                y[i] = 2.0 * x[i]


@hal.kernel
def halved_picture(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if hal.global_idx(1) == 0 and i < w * h:
        total = hal.float32(0)
        for k in range(2):
            total += x[min(2 * i + k, w * h - 1)]
        y[i] = total


@hal.kernel
def left_by_fours(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    if hal.global_idx(1) == 0:
        for k in range(4):
            i = 4 * hal.global_idx(0) + k
            if i >= w * h:
                break
            y[i] = 2.0 * x[i]


@hal.kernel
def wrapped_by_tests(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        left = i - 1
        if left < 0:
            left = w - 1
        right = i + 1
        if right == w:
            right = 0
        y[j * w + i] = x[j * w + left] + 2.0 * x[j * w + right]


@hal.kernel
def wrapped_by_tests_of_one_variable(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = hal.float32(0)
        for di in range(-2, 3):
            ii = i + di
            while_below = 0
            for _ in range(2):
                if ii < 0:
                    ii += w
                    while_below += 1
                if ii >= w:
                    ii -= w
            total += x[j * w + ii] + hal.float32(while_below)
        for di in range(-1, 2):
            ii = i + di
            if ii < 0:
                ii += w
            if ii >= w:
                ii -= w
            total = 3.0 * total + x[j * w + ii]
        y[j * w + i] = total


@hal.kernel
def wrapped_by_selects(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i >= w or j >= h:
        return
    left = i - 1
    left = left + w if left < 0 else left
    left = left - w if left >= w else left
    right = i + 2
    if right < w:
        again = right
    else:
        again = right
        again %= w
    if again < 0:
        again += w
    y[j * w + i] = x[j * w + left] + 2.0 * x[j * w + again]


@hal.kernel
def periodic_by_one_loop(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = hal.float32(0)
        for k in range(9):
            if k == 4:
                continue
            row = (j + k // 3 - 1 + h) % h
            total = 2.0 * total + x[row * w + (i + (k % 3 * 2 - 1) - 1 + w) % w]
        y[j * w + i] = total


@hal.kernel
def rolled(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        y[j * w + i] = x[j * w + (w + (i - j)) % w] + 2.0 * x[j * w + (i - 1 + j % 3 + w) % w]


@hal.kernel
def mirrored(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = hal.float32(0)
        for k in range(-2, 3):
            q = abs(i + k)
            if q >= w:
                q = max(2 * w - 2 - q, 0)
            total += x[j * w + q]
        y[j * w + i] = total


SPLIT = [
    left_by_fours,
    wrapped_by_tests,
    wrapped_by_tests_of_one_variable,
    wrapped_by_selects,
    periodic_by_one_loop,
    rolled,
    by_fours_in_a_loop,
    written_out_by_fours,
    by_strides,
    by_tiles,
    halved_picture,
    by_numbered_blocks,
    clamped,
    clamped_in_a_loop,
    periodic,
    periodic_of_33,
    padded,
    edged,
    chosen,
    half_each,
    mirrored,
]


@pytest.mark.parametrize("kernel", SPLIT, ids=lambda kernel: kernel.name)
def test_clamps_and_tests_of_borders(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    # Under a mask, loads of neighbours are as fast; `padded` and `chosen` have no others.
    function = llvm.function(lowered)
    random = np.random.default_rng(0)
    for w, h in [*SHAPES, (0, 3), (3, 0), (-5, 4)]:
        x = random.integers(-99, 99, max(1, w * h)).astype(np.float32)
        for block, threads in [
            ((8, 1, 1), (w + 7, h)),
            ((3, 2, 1), (w, h + 3)),
            ((64, 1, 1), (w, h)),
        ]:
            grid = tuple(max(1, -(-n // size)) for n, size in zip(threads, block, strict=False))
            y, expected = np.full((2, x.size), 5, np.float32)
            llvm.call(function, lowered, {"y": y, "x": x, "w": w, "h": h}, (*grid, 1), block)
            interpret(kernel, expected, x, vals=(w, h), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"{w} x {h} in {block}")


@hal.kernel
def rolled_by_a_number(
    y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32, s: hal.int32
):
    i = hal.global_idx(0)
    y[i] = x[(i - s + n) % n & 63] + 100 * x[(i + n + s) % n & 63]


@hal.kernel
def rolled_by_tests(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32, s: hal.int32):
    i = hal.global_idx(0)
    ii = i - s
    if ii < 0:
        ii += n
    if ii >= n:
        ii -= n
    y[i] = x[ii & 63]


@hal.kernel
def rolled_in_a_row(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32, s: hal.int32):
    k = hal.global_idx(0)
    i = k % n
    y[k] = x[(i - s + n) % n & 63] + 10 * x[(i + 2 + n) % n & 63] + 100 * x[(i + 7) % n & 63]


@pytest.mark.parametrize(
    "kernel", [rolled_by_a_number, rolled_by_tests, rolled_in_a_row], ids=lambda kernel: kernel.name
)
def test_a_wrap_whose_sum_leaves_int32(llvm: LLVM, kernel: Any) -> None:
    """`i - s + n` wraps for a part of the threads, or for all of them."""
    lowered, x = kernel.lower(), np.arange(64, dtype="i4")
    function = llvm.function(lowered)
    for n in (-(2**31), -5, 0, 1, 7, 64, 2**30, 2**30 + 40, 2**31 - 40, 2**31 - 1):
        for s in (-(2**31), -(2**30), 70 - 2**31, -n, -3, 0, 1, n // 2, 2**30 - 9, 2**31 - 1):
            y, expected = np.full((2, 192), -1, "i4")
            values = {"x": x, "n": np.int32(n), "s": np.int32(min(s, 2**31 - 1))}
            llvm.call(function, lowered, {"y": y, **values}, (3, 1, 1), (64, 1, 1))
            interpret(lowered, expected, x, vals=(n, int(values["s"])), grid=3, block=64)
            np.testing.assert_array_equal(y, expected, f"{n}, {s}")


@hal.kernel
def wrapped_by_eight(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    y[i] = x[(i + n + 5) % 8]


@pytest.mark.parametrize("n", [0, 1, -3, -40, 6, 1000])
def test_an_index_wrapped_by_another_number_than_was_added(llvm: LLVM, n: int) -> None:
    """8 was subtracted from the sum, and the value that the row shares forgotten."""
    lowered, x = wrapped_by_eight.lower(), np.arange(8, dtype="i4")
    y, expected = np.full((2, 24), -1, "i4")
    llvm.call(llvm.function(lowered), lowered, {"y": y, "x": x, "n": n}, (1, 1, 1), (24, 1, 1))
    interpret(wrapped_by_eight, expected, x, vals=(n,), threads=24, block=24)
    np.testing.assert_array_equal(y, expected)


@hal.kernel
def shifted_by_large_products(
    y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32, o: hal.int32
):
    i = hal.global_idx(0)
    for q in range(1, 4):
        c = i + (o * 2000000000) * (q * 2000000000) * (q * 1999999999)
        y[i] += x[min(max(c, 0), n - 1)]


def test_no_number_of_the_text_leaves_int64(llvm: LLVM) -> None:
    """The factor of `o` does, before it wraps."""
    function = llvm.function(shifted_by_large_products.lower())
    x = np.arange(40, dtype="i4")
    for o in (0, 3, -(2**31)):
        y, expected = np.zeros((2, 64), "i4")
        arguments = {"y": y, "x": x, "n": 40, "o": o}
        llvm.call(function, shifted_by_large_products.lower(), arguments, (1, 1, 1), (64, 1, 1))
        interpret(shifted_by_large_products, expected, x, vals=(40, o), grid=1, block=64)
        np.testing.assert_array_equal(y, expected)


@hal.kernel
def counted_on(y: hal.Ptr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    for k in range(3):
        if k + 1 < n:
            y[i] += k


def test_a_sum_of_a_counter_and_a_constant_is_no_index_of_a_thread(llvm: LLVM) -> None:
    lowered, y, expected = counted_on.lower(), np.zeros(8, "i4"), np.zeros(8, "i4")
    llvm.run(lowered, {"y": y, "n": 3}, (1, 1, 1), (8, 1, 1))
    interpret(counted_on, expected, vals=(3,), grid=1, block=8)
    np.testing.assert_array_equal(y, expected)


# -- stores that LLVM compares


@hal.kernel
def turned(y: Floats, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        a = x[2 * j * w + i]
        b = x[2 * j * w + w + i]
        y[2 * j * w + i] = a - b
        y[2 * j * w + w + i] = a + b


def test_rows_that_lie_between_rows(llvm: LLVM) -> None:
    re.compile(r"or i32 %global\.y")
    for w in (1, 16, 37, 64):
        x = np.arange(6.0 * w, dtype="f4")
        y, expected = np.zeros((2, 6 * w), "f4")
        arguments = {"y": y, "x": x, "w": w, "h": 3}
        llvm.run(turned.lower(), arguments, (2, 3, 1), (32, 1, 1))
        interpret(turned, expected, x, vals=(w, 3), grid=(2, 3, 1), block=(32, 1, 1))
        np.testing.assert_array_equal(y, expected)


# -- names


# -- blocks of a row as one


@hal.kernel
def numbered(y: hal.Ptr[hal.int32], w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        y[j * w + i] += 100 * j + i


@hal.kernel
def numbered_in_boxes(y: hal.Ptr[hal.int32], w: hal.int32, h: hal.int32, d: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    k = hal.global_idx(2)
    if i < w and j < h and k < d:
        y[(k * h + j) * w + i] += 10000 * k + 100 * j + i


@pytest.mark.parametrize("part", [(0, 6), (1, 5), (2, 3), (3, 3), (4, 6)])
def test_blocks_of_a_row_run_as_one_and_no_others(llvm: LLVM, part: tuple[int, int]) -> None:
    w, h = 11, 3  # blocks of 4 x 2 in a grid of 3 x 2
    y = np.full((h, w), -1, np.int32)
    arguments = {"y": y, "w": w, "h": h}
    llvm.run(numbered.lower(), arguments, (3, 2, 1), (4, 2, 1), part)
    for j, i in np.ndindex(h, w):
        block = j // 2 * 3 + i // 4
        assert y[j, i] == (100 * j + i - 1 if part[0] <= block < part[1] else -1)


def test_whole_rows_of_blocks_run_as_one_and_no_others(llvm: LLVM) -> None:
    """Of any grid, in any part of a launch: each thread of the part runs once."""
    kernel, rng = numbered_in_boxes.lower(), np.random.default_rng(5)
    function = llvm.function(kernel)
    for _ in range(500):
        grid, block = (tuple(rng.integers(1, top, 3).tolist()) for top in ([5, 6, 4], 4))
        w, h, d = (max(1, a * b - rng.integers(3)) for a, b in zip(grid, block, strict=True))
        total = math.prod(grid)
        first, last = sorted(rng.integers(0, total + 1, 2).tolist())
        y, expected = np.full((2, d, h, w), -1, np.int32)
        llvm.call(function, kernel, {"y": y, "w": w, "h": h, "d": d}, grid, block, (first, last))
        k, j, i = np.indices((d, h, w))
        number = (k // block[2] * grid[1] + j // block[1]) * grid[0] + i // block[0]
        runs = (first <= number) & (number < last)
        expected += np.where(runs, 10000 * k + 100 * j + i, 0).astype("i4")
        np.testing.assert_array_equal(y, expected, f"{first} to {last} of {grid}, {block}")


# -- what the processor has


def _copied(renderer: LLVMRenderer) -> tuple[Kernel, str]:
    b = Builder("copied", "y: float16*, z: float32*, h: const float16*, x: const float32*")
    i = b.index()
    b.store("z", i, b.cast(b.load("h", i), float32))
    b.store("y", i, b.cast(b.load("x", i), float16))
    kernel = b.kernel()
    return kernel, renderer.render(kernel)


def test_float16_by_the_processor_and_by_hand_is_the_same(tmp_path: Path) -> None:
    found = []
    h = np.arange(65536, dtype=np.uint16).view(np.float16)
    x = np.random.default_rng(0).integers(0, 2**32, 65536, dtype=np.uint32).view(np.float32)
    for half in (False, True):
        llvm = LLVM(tmp_path)
        if llvm.missing:
            pytest.skip(llvm.missing)
        features = llvm.llvm.get_host_cpu_features()
        if half and not (features.get("f16c") or features.get("neon")):
            pytest.skip("the processor does not convert float16")
        llvm.renderer = LLVMRenderer(half=half)
        kernel, text = _copied(llvm.renderer)
        assert ("half" in text) is half
        y, z = np.zeros(65536, np.float16), np.zeros(65536, np.float32)
        llvm.run(kernel, {"y": y, "z": z, "h": h, "x": x}, (256, 1, 1), (256, 1, 1))
        y[np.isnan(y)] = np.nan
        z[np.isnan(z)] = np.nan
        found.append((y.view(np.uint16), z.view(np.uint32)))
    for by_hand, by_processor in zip(*found, strict=True):
        np.testing.assert_array_equal(by_hand, by_processor)


def test_without_the_instruction_no_half_is_named(llvm: LLVM) -> None:
    """LLVM would call __extendhfsf2, which not every system has."""
    assert "half" not in _copied(LLVMRenderer())[1]
    assert re.search(r"fpext .*half", _copied(LLVMRenderer(half=True))[1])


# -- branches


def test_a_long_list_of_branches_is_rendered_in_linear_time() -> None:
    def rendering(count: int) -> int:
        b = Builder("branches", "y: int32*, n: int32")
        for number in range(count):
            block = b.if_(b.op("LT", b.params["n"], b.const(number)))
            b.store("y", b.const(number), b.params["n"])
            b.end(block)
        kernel = b.kernel()
        return calls(lambda: LLVMRenderer().render(kernel))

    assert rendering(1000) < 12 * rendering(100)


# -- threads that stride over the data


@hal.kernel
def strides_counted(y: hal.Ptr[hal.int32], n: hal.int32, step: hal.int32, most: hal.int32):
    i = hal.global_idx(0) + 2
    own = hal.global_idx(0)
    total = hal.int32(0)
    turns = hal.int32(0)
    while i < n:
        total = total * 3 + i
        turns += 1
        if turns == most:
            n_of_all = hal.int32(7)
            total += n_of_all
        i += step
    y[own] = total
    i = hal.thread_idx(0)
    while i < 9:
        y[own] += i
        i += 4


def strides_of(first: int, n: int, step: int) -> tuple[int, int]:
    """The sum that a thread makes, and its iterations, of which there may be no end."""
    total = turns = 0
    i = first
    while i < n and turns < 1000:
        total, turns, i = wrapped(total * 3 + i), turns + 1, wrapped(i + step)
        total = wrapped(total + 7 * (turns == 5))
    return total, turns


def test_strides_that_wrap(llvm: LLVM) -> None:
    kernel = strides_counted.lower()
    function = llvm.function(kernel)
    wraps = 0
    step = 1431655786  # three of them are 2**32 + 62
    large = [(step + 200, step), (step + 90, step)]
    for n, step in [(0, 1), (2, 5), (30, 1), (31, 7), (500, 32), (3, -1), (40, 2**31 - 50), *large]:
        for n_ in (n, -n):
            sums = [strides_of(t + 2, n_, step) for t in range(40)]
            if max(turns for _, turns in sums) == 1000:
                continue
            wraps += n_ + step > 2**31
            y = np.zeros(40, np.int32)
            vals = {"n": n_, "step": step, "most": 5}
            llvm.call(function, kernel, {"y": y, **vals}, (2, 1, 1), (20, 1, 1))
            expected = [
                wrapped(total + sum(range(t % 20, 9, 4))) for t, (total, _) in enumerate(sums)
            ]
            assert y.tolist() == expected, vals
    assert wraps


@hal.kernel
def by_rows(y: hal.Ptr[hal.float64], a: hal.ConstPtr[hal.float64], w: hal.int32):
    j = hal.global_idx(0)
    total = hal.float64(0)
    for i in range(w):
        total += a[j * w + i] * a[i]
    y[j] = total

"""Loops that the threads of a row run together do what they did."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from builder import Builder
from toolchains import LLVM

import hal_core as hal
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.blocks import lockstep
from hal_kernel.ir.blocks.fission import split
from hal_kernel.ir.verify import verify

# mypy: disable-error-code="no-untyped-def"
Numbers = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]
GRID, BLOCK = (2, 3, 1), (155, 2, 1)  # rows of groups of each size, and threads behind them
WIDE = 310
FEW = (1, 3, 1), (30, 2, 1)
THREADS = 6 * WIDE


def in_groups(kernel: Kernel) -> bool:
    return any(node.op == "ROW_GROUPS" for node in split(kernel, grouped=True))


class Drawn:
    """Kernels with loops, tests and loads that the threads of a row share, and others."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.b = b = Builder("rows", "y: int32*, x: const int32*, n: int32")
        self.i, self.j, self.n = b.index(), b.special("global_idx", 1), b.params["n"]
        self.thread = b.op("ADD", b.op("MUL", self.j, b.const(WIDE)), self.i)
        self.counters: list[UOp] = []
        guards = [b.if_(guard) for guard in self.guards()]
        self.own, self.shared = list[UOp](), list[UOp]()
        self.own += [b.var("p", self.value()), b.var("q", self.i)]
        self.shared += [b.var("s", self.common()), b.var("r", b.const(0))]
        for _ in range(self.rng.randint(1, 3)):
            self.statement(3, True)
        self.loop(2, True)
        if self.rng.random() < 0.5:
            self.statement(2, True)
        total = b.op("XOR", b.get(self.own[0]), b.op("MUL", b.get(self.own[1]), b.const(31)))
        b.store("y", self.thread, b.op("ADD", total, b.get(self.shared[0])))
        for guard in reversed(guards):
            b.end(guard)

    def guards(self) -> list[UOp]:
        b, n = self.b, self.n
        few = b.op("ADD", b.op("MUL", n, b.const(60)), b.const(5))
        found = [b.op("LT", self.i, few), b.op("LT", self.j, b.op("SUB", n, b.const(1)))]
        if self.rng.random() < 0.3:
            found = [b.op("AND", *found)]
        return found[: self.rng.randint(0, 2)]

    def load(self, value: UOp) -> UOp:
        b = self.b
        return b.load("x", b.op("MAX", b.op("MIN", value, b.const(63)), b.const(0)))

    def common(self) -> UOp:
        """A value that a row shares."""
        b, rng = self.b, self.rng
        value = rng.choice([
            lambda: self.j, lambda: self.n, lambda: b.const(rng.randint(-9, 9)),
            lambda: self.load(self.j),
            lambda: b.get(rng.choice(self.shared)) if self.shared else self.n,
            lambda: rng.choice(self.counters) if self.counters else self.j,
        ])()  # fmt: skip
        if rng.random() < 0.4:
            value = b.op(rng.choice(["ADD", "SUB", "XOR", "MAX"]), value, self.common())
        return self.load(value) if rng.random() < 0.3 else value

    def value(self) -> UOp:
        b, rng = self.b, self.rng
        value = rng.choice([
            lambda: self.i, lambda: self.load(self.i), self.common,
            lambda: self.load(b.op("ADD", self.i, self.common())),
            lambda: b.get(rng.choice(self.own)) if self.own else self.i,
        ])()  # fmt: skip
        return b.op("SUB", value, self.common()) if rng.random() < 0.3 else value

    def condition(self, shared: bool) -> UOp:
        op = self.rng.choice(["LT", "LE", "GT", "NE", "EQ"])
        return self.b.op(op, self.common() if shared else self.value(), self.common())

    def step(self, together: bool) -> None:
        b, rng = self.b, self.rng
        if together and rng.random() < 0.3:
            kept, value = rng.choice(self.shared), self.common()
        else:
            kept, value = rng.choice(self.own), self.value()
        b.set(kept, b.op(rng.choice(["ADD", "SUB", "MUL", "XOR", "MAX"]), b.get(kept), value))

    def statement(self, depth: int, together: bool) -> None:
        b, rng = self.b, self.rng
        chance = rng.random()
        if not depth or chance < 0.5:
            self.step(together)
        elif chance < 0.55:
            self.idle(depth - 1, together)
        elif chance < 0.75:
            shared = rng.random() < 0.7
            block = b.if_(self.condition(shared))
            self.statement(depth - 1, together and shared)
            if rng.random() < 0.4:
                b.else_(block)
                self.statement(depth - 1, together and shared)
            b.end(block)
        elif chance < 0.85:
            place = b.op("ADD", self.thread, b.const(THREADS * rng.randint(1, 2)))
            b.store("y", place, self.value())
        else:
            self.loop(depth - 1, together)

    def idle(self, depth: int, together: bool) -> None:
        """A loop in which little differs between the threads."""
        b = self.b
        count = b.op("AND", self.common(), b.const(31))
        loop = b.range(b.const(0), count, b.const(1))
        self.counters.append(loop)
        kept = self.rng.choice(self.shared if together else self.own)
        b.set(kept, b.op("XOR", b.op("MUL", b.get(kept), b.const(3)), self.common()))
        if depth and self.rng.random() < 0.3:
            self.statement(depth - 1, together)
        self.counters.remove(loop)
        b.end(loop)

    def loop(self, depth: int, together: bool) -> None:
        b, rng = self.b, self.rng
        chance = rng.random()
        if chance < 0.2:
            loop = b.range(b.const(0), b.const(rng.randint(1, 3)), b.const(1))
        elif chance < 0.7:
            start = self.common()
            more = b.op("AND", self.common(), b.const(7))
            step = rng.choice([1, 1, 2, -1])
            stop = b.op("ADD" if step > 0 else "SUB", start, more)
            loop = b.range(start, stop, b.const(step))
        else:
            turns = b.var("turns", b.const(0))
            limit = b.op("AND", self.common(), b.const(7))
            loop = b.loop()
            with b.when(b.op("GE", b.get(turns), limit)):
                b.break_(loop)
            b.set(turns, b.op("ADD", b.get(turns), b.const(1)))
        self.counters += [loop] if loop.op == "RANGE" else []
        for _ in range(rng.randint(1, 3)):
            self.statement(depth, together)
            if rng.random() < 0.3:
                with b.when(self.condition(rng.random() < 0.95)):
                    if rng.random() < 0.4:
                        self.step(False)
                    b.break_(loop) if rng.random() < 0.6 else b.continue_(loop)
        if loop.op == "RANGE":
            self.counters.remove(loop)
        b.end(loop)

    def kernel(self) -> Kernel:
        return self.b.kernel()


def compared(llvm: LLVM, kernel: Kernel, note: str) -> None:
    compiled = llvm.function(kernel)
    x = np.random.default_rng(5).integers(-40, 60, 64).astype("i4")
    for n, (grid, block) in ((3, (GRID, BLOCK)), (6, (GRID, BLOCK)), (2, FEW), (0, FEW)):
        y, expected = np.full((2, 3 * THREADS), 5, "i4")
        llvm.call(
            compiled, kernel, {"y": y, "x": x, "n": n}, grid, block, workers=2 if n > 3 else 1
        )
        interpret(kernel, expected, x, vals=(n,), grid=grid, block=block)
        np.testing.assert_array_equal(y, expected, f"{note}, n {n}")


def test_drawn_kernels(llvm: LLVM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockstep, "_VECTOR_STRIDES", (None, *range(-(2**9), 2**9)))
    found = 0
    for seed in range(36):
        kernel = Drawn(seed).kernel()
        verify(kernel)
        if in_groups(kernel):
            found += 1
            compared(llvm, kernel, f"seed {seed}")
    assert found > 12


@hal.kernel
def bags(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = 0
        for k in range(off[j], off[j + 1]):
            total += x[k] * x[(x[k] & 31) + i]
        y[j * w + i] = total


@hal.kernel
def greatest(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.block_idx(1) * hal.block_dim(1) + hal.thread_idx(1)
    if i >= w or j >= h:
        return
    most = x[off[j] + i]
    k = off[j] + 1
    while k < off[j + 1]:
        most = max(most, x[k + i])
        k += 1
    y[j * w + i] = most - off[j]


@hal.kernel
def neighbours(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = x[i]
        for k in range(w):
            n = x[j * 9 + k]
            if n < -20:
                break
            if n == 7:
                continue
            total += x[i + (n & 15)]
        y[j * w + i] = total


@hal.kernel
def kept_inside(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        first = off[j] - 20
        last = off[j] + 3
        if first < 0:
            first = 0
        if last > 30:
            last = 30
        total = 0
        for k in range(first, last):
            for m in range(first, k):
                total += x[m + i] - k
        y[j * w + i] = total // (last - first)


@hal.kernel
def between_keys(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w and hal.global_idx(1) == 0:
        low = 0
        high = h
        while high - low > 1:
            middle = (low + high) // 2
            if off[middle] <= 33:
                low = middle
            else:
                high = middle
        y[i] = x[i] * (33 - off[low]) + x[i + 1] * off[low]


@hal.kernel
def masked(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = 0
        count = 0
        for k in range(h):
            if x[j * 7 + k] > 0:
                total += x[j * 7 + k + i]
                count += 1
            else:
                total -= 1
        y[j * w + i] = total * 8 + count


@hal.kernel
def beside_the_greatest(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    """The greatest element of a row is found once, the number of those like it by each group."""
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i >= w or j >= h:
        return
    most = x[j * w]
    for k in range(1, w):
        most = max(most, x[j * w + k])
    y[j * w + i] = most - x[j * w + i]
    count = 0
    most = most - 9
    for k in range(w):
        count += 1 if x[j * w + k] > most else 0
    y[j * w + i + w * h] = count + most


BY_HAND: list[Any] = [
    bags, greatest, neighbours, kept_inside, between_keys, masked, beside_the_greatest
]  # fmt: skip


@pytest.mark.parametrize("function", BY_HAND, ids=lambda function: function.name)
def test_rows_of_any_width_give_what_the_interpreter_gives(llvm: LLVM, function: Any) -> None:
    """`off` has no element more than the guards let through."""
    lowered = function.lower()
    assert in_groups(lowered)
    compiled = llvm.function(lowered)
    x = np.random.default_rng(1).integers(-40, 60, 2000).astype("i4")
    off = np.cumsum([0, 3, 0, 9, 1, 17, 4], dtype="i4")
    for w in (0, 1, 6, 23, 129, 300):
        for h, grid, block in ((6, (10, 4, 1), (32, 2, 1)), (5, (1, 8, 1), (300, 1, 1))):
            y, expected = np.full((2, 2 * w * h), 5, "i4")
            given = {"y": y, "x": x, "off": off[: h + 1], "w": w, "h": h}
            llvm.call(compiled, lowered, given, grid, block)
            interpret(function, expected, x, off[: h + 1], vals=(w, h), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"w {w}, h {h}")


@hal.kernel
def own_bounds(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    total = 0
    for k in range(off[i], off[i + 1]):
        total += x[k]
    y[i] = total


@hal.kernel
def guarded_by_data(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if x[i] > 0:
        total = 0
        for k in range(off[j], off[j + 1]):
            total += x[k + i]
        y[i] = total


@hal.kernel
def counted_by_all(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    total = 0
    for k in range(off[j], off[j + 1]):
        total += hal.atomic_add(y, 0, x[k + i])
    y[i] = total


@hal.kernel
def twice_stored(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    for k in range(off[j], off[j + 1]):
        y[k * w + i] = x[k]
        y[k * w + w + i] = x[k + i]


@hal.kernel
def of_three(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < 3 and j < h:
        total = 0
        for k in range(off[j], off[j + 1]):
            total += x[k * 3 + i]
        y[3 * j + i] = total


@hal.kernel
def by_a_flat_index(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    """Rows are cut where `p // w` changes, which no group of a row does."""
    p = hal.global_idx(0)
    if p < w * h:
        total = 0
        for k in range(h):
            total += off[k]
        y[p] = total * x[p // w] + x[p % w]


@pytest.mark.parametrize("step", [1, 2], ids=["one region", "several"])
def test_a_kernel_without_a_store_is_rendered(llvm: LLVM, step: int) -> None:
    b = Builder("idle", "y: int32*, x: const int32*, n: int32")
    total = b.var("total", b.const(0))
    loop = b.range(b.const(0), b.params["n"], b.const(step))
    b.set(total, b.op("ADD", b.get(total), b.load("x", loop)))
    if step == 2:
        b.set(b.var("own", b.index()), b.op("ADD", b.get(total), b.index()))
    b.end(loop)
    x = np.arange(8, dtype="i4")
    llvm.run(b.kernel(), {"y": x, "x": x, "n": 8}, (1, 1, 1), (16, 1, 1))


@pytest.mark.parametrize(
    "function",
    [by_a_flat_index, own_bounds, guarded_by_data, counted_by_all, twice_stored, of_three],
    ids=lambda function: function.name,
)
def test_other_loops_stay_as_they_are(function: Any) -> None:
    assert not in_groups(function.lower())

"""Drawn loops that threads leave one by one do in lockstep what they did."""

from __future__ import annotations

import random

import pytest
from builder import Builder
from stepping import Block, Memory, listing

from hal_core.dtypes import bool_
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.blocks import leaving, lockstep
from hal_kernel.ir.blocks.fission import split
from hal_kernel.ir.verify import verify

MEMORY: Memory = {0: [0] * 64, 1: [7, -3, 5, 2, 11, -8, 1, 4]}


class Leaving:
    """Kernels with such loops: tests at their begin, branches in each other that leave, loads."""

    def __init__(self, seed: int, threads: int = 5) -> None:
        self.rng, self.threads = random.Random(seed), threads
        self.returns = seed % 3 == 0
        self.b = b = Builder("leaving", "y: int32*, x: const int32*, n: int32")
        self.t, self.n = b.special("thread_idx"), b.params["n"]
        self.variables = [b.var(name, self.value()) for name in ("p", "q", "r")]
        guard = b.if_(b.op("LT", self.t, self.n)) if self.rng.random() < 0.3 else None
        around = None
        if self.rng.random() < 0.4:
            around = b.range(b.const(0), b.op("ADD", self.n, b.const(17)), b.const(1), "around")
        for _ in range(self.rng.randint(1, 2)):
            self.step()
            self.loop_or_branch(2)
        if around is not None:
            b.end(around)
        total = b.op("XOR", b.get(self.variables[0]), b.get(self.variables[1]))
        b.store("y", self.t, b.op("ADD", total, b.get(self.variables[2])))
        if guard is not None:
            b.end(guard)

    def value(self) -> UOp:
        b, rng = self.b, self.rng
        return rng.choice([
            lambda: self.t, lambda: self.n, lambda: b.const(rng.randint(-9, 9)),
            lambda: b.load("x", b.op("AND", self.t, b.const(7))),
            lambda: b.get(rng.choice(self.variables)) if hasattr(self, "variables") else self.t,
        ])()  # fmt: skip

    def condition(self) -> UOp:
        return self.b.op(
            self.rng.choice(["LT", "LE", "GT", "NE", "EQ"]), self.value(), self.value()
        )

    def step(self) -> None:
        b, rng = self.b, self.rng
        kept = rng.choice(self.variables)
        value = self.value()
        if rng.random() < 0.3:
            value = b.load("x", b.op("AND", value, b.const(7)))
        b.set(kept, b.op(rng.choice(["ADD", "SUB", "MUL", "XOR", "MAX"]), b.get(kept), value))

    def store(self) -> None:
        """Store to an element of this thread, and set a variable and load between two stores."""
        b = self.b
        for place in range(self.rng.randint(1, 2)):
            value = b.op("XOR", b.get(self.rng.choice(self.variables)), self.value())
            b.store("y", b.op("ADD", self.t, b.const(16 + 8 * place)), value)
            if self.rng.random() < 0.3:
                self.step()

    def loop_or_branch(self, depth: int) -> None:
        b, rng = self.b, self.rng
        if not depth or rng.random() < 0.6:
            self.loop()
            return
        block = b.if_(self.condition())
        for side in range(rng.randint(1, 2)):
            if side:
                b.else_(block)
            for draw in (self.step, lambda: self.loop_or_branch(depth - 1), self.step):
                if rng.random() < 0.7:
                    draw()
            if rng.random() < 0.3:
                b.store("y", b.op("ADD", self.t, b.const(32)), b.get(rng.choice(self.variables)))
        b.end(block)

    def loop(self) -> None:
        b, rng = self.b, self.rng
        if rng.random() < 0.4:
            start = self.value()
            stop = b.op("ADD", start, b.op("AND", self.value(), b.const(15)))
            loop = b.range(start, stop, b.const(1))
            neighbour = b.load("x", b.op("AND", b.op("ADD", self.t, loop), b.const(7)))
            kept = rng.choice(self.variables)
            b.set(kept, b.op("XOR", b.get(kept), neighbour))
            self.body(loop, 3)
            b.end(loop)
            return
        turns = b.var("turns", b.const(0))
        limit = b.op("AND", self.value(), b.const(15))
        loop = b.loop()
        if rng.random() < 0.5:
            self.step()
        with b.when(b.op("GE", b.get(turns), limit)):
            b.break_(loop)
        b.set(turns, b.op("ADD", b.get(turns), b.const(1)))
        self.body(loop, 3)
        b.end(loop)

    def body(self, loop: UOp, depth: int) -> None:
        b, rng = self.b, self.rng
        for _ in range(rng.randint(0, 3)):
            self.step()
            chance = rng.random()
            if depth and chance < 0.5:
                block = b.if_(self.condition())
                self.side(loop, depth - 1)
                if rng.random() < 0.5:
                    b.else_(block)
                    self.side(loop, depth - 1)
                b.end(block)
            elif depth and chance < 0.6:
                k = b.range(b.const(0), b.const(rng.randint(1, 3)), b.const(1))
                self.body(k, 1)
                b.end(k)

    def side(self, loop: UOp, depth: int) -> None:
        self.body(loop, depth)
        if self.rng.random() < 0.2:
            self.store()
        if self.returns and self.rng.random() < 0.2:
            self.b.return_()
        elif self.rng.random() < 0.4:
            self.b.break_(loop)
        elif self.rng.random() < 0.2:
            self.b.continue_(loop)

    def kernel(self) -> Kernel:
        return self.b.kernel(block=(self.threads, 1, 1))


def same(kernel: Kernel, few: int, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, bool]:
    """Tell whether a kernel was rewritten, and whether it does what it did."""
    monkeypatch.setattr(leaving, "_FEW", few)
    monkeypatch.setattr(leaving, "_FEW_WITH_SLOW", few)
    monkeypatch.setattr(lockstep, "_FEWEST_LANES", 1)
    uops = split(kernel, grouped=True)
    results = []
    for nodes, order in ((kernel.uops, ""), (uops, "forward"), (uops, "shuffled")):
        block = Block(nodes, {key: [*v] for key, v in MEMORY.items()}, {2: 3}, 0, 5)
        block.run_split(order) if order else block.run()
        results.append(block.memory[0])
    return any(node.op == "COUNT" for node in uops), results[0] == results[1] == results[2]


@pytest.mark.parametrize("few", [0, 1])
def test_drawn_loops_that_threads_leave_one_by_one(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = 0
    for seed in range(200):
        kernel = Leaving(seed).kernel()
        verify(kernel)
        rewritten, agrees = same(kernel, few, monkeypatch)
        assert agrees, f"{seed}\n{listing(kernel.uops)}"
        found += rewritten
    assert found > 40


def test_a_thread_that_has_left_and_runs_on_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second test of a flag holds for all threads."""
    written, count = leaving._Written._ask, 0

    def careless(self: leaving._Written) -> UOp:
        nonlocal count
        count += 1
        if count % 2:
            return written(self)
        always = self._add("EQ", bool_, self.zero, self.zero)
        return self._add("IF", None, always)

    monkeypatch.setattr(leaving._Written, "_ask", careless)
    assert not all(same(Leaving(seed).kernel(), 0, monkeypatch)[1] for seed in range(150))

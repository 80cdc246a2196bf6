"""Kernels of several kinds, drawn at random from a seed."""

from __future__ import annotations

import random

from builder import Builder

from hal_core.dtypes import bool_, int64
from hal_kernel.ir import Kernel, UOp

WIDE = 310  # threads of a row of `Rows`
THREADS = 6 * WIDE


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
            b.store("y", b.op("ADD", self.t, b.const(64 + 64 * place)), value)
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
                b.store("y", b.op("ADD", self.t, b.const(192)), b.get(rng.choice(self.variables)))
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


class Strided:
    """Kernels as reductions and sweeps are written: loops over a stride from the thread's number,
    in each other and under conditions, with sums that go on."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.b = b = Builder("strided", "y: int32*, x: const int32*, n: int32")
        self.wide = self.rng.choice([1, 3, 4])
        self.t, self.i, self.n = b.special("thread_idx"), b.index(), b.params["n"]
        guards = [b.if_(self.condition(guard=True)) for _ in range(self.rng.choice([0, 0, 1, 2]))]
        self.sum, self.other = b.var("sum", self.i), b.var("other", b.const(1))
        for _ in range(self.rng.randint(1, 3)):
            self.loop(2)
            self.step()
        b.store("y", self.i, b.op("XOR", b.get(self.sum), b.get(self.other)))
        for guard in reversed(guards):
            b.end(guard)

    def condition(self, guard: bool = False) -> UOp:
        left = self.rng.choice([self.t, self.i] if guard else [self.t, self.i, self.n])
        right = self.rng.choice([self.n, self.b.const(self.rng.randint(0, 9))])
        return self.b.op(self.rng.choice(["LT", "LE", "GT", "NE"]), left, right)

    def start(self) -> UOp:
        b, rng = self.b, self.rng
        return rng.choice([
            lambda: self.t, lambda: self.i, lambda: b.const(rng.randint(-3, 3)), lambda: self.n,
            lambda: b.op("ADD", self.t, b.const(rng.randint(0, 5))),
            lambda: b.op("ADD", self.i, b.const(1)), lambda: b.op("SUB", self.t, b.const(1)),
        ])()  # fmt: skip

    def loop(self, depth: int) -> None:
        b, rng = self.b, self.rng
        stop = rng.choice([self.n, b.const(rng.randint(-2, 14)), b.op("ADD", self.n, b.const(5))])
        step = rng.choice([1, 1, 2, 3, 4, 7, -1, -2])
        k = b.range(self.start(), stop, b.const(step), "k")
        for _ in range(rng.randint(1, 2)):
            self.step(k)
            if depth and rng.random() < 0.4:
                self.loop(depth - 1)
        if rng.random() < 0.3:
            block = b.if_(b.op("LT", k, self.n))
            self.step(k)
            b.end(block)
        b.end(k)

    def step(self, k: UOp | None = None) -> None:
        b, rng = self.b, self.rng
        value = self.i if k is None else k
        if rng.random() < 0.6:
            value = b.load("x", b.op("AND", value, b.const(7)))
        kept = rng.choice([self.sum, self.other])
        b.set(kept, b.op(rng.choice(["ADD", "MUL", "XOR", "MAX"]), b.get(kept), value))
        if rng.random() < 0.3:
            b.store("y", b.op("ADD", self.i, b.const(8)), b.get(kept))

    def kernel(self) -> Kernel:
        return self.b.kernel(block=(self.wide, 1, 1))


class Rows:
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


def conditions(seed: int) -> Kernel:
    """A store under a condition of sides that set a variable, each with a load in it."""
    rng = random.Random(seed)
    b = Builder("drawn", "y: int32*, n: int32")
    place = b.index()

    def compared() -> UOp:
        value = b.load("y", place) if rng.random() < 0.7 else b.params["n"]
        return b.op(rng.choice(["LT", "GT"]), value, b.const(rng.randint(-2, 2)))

    def condition(depth: int) -> UOp:
        if not depth or rng.random() < 0.2:
            return compared()
        choice = b.add("VAR", bool_, arg="choice")
        block = b.if_(condition(depth - 1))
        decides = rng.random() < 0.8 and rng.randint(0, 1)
        for side in (0, 1):
            constant = b.const(rng.random() < 0.5, bool_) if side == decides else None
            b.set(choice, constant or condition(depth - 1))
            if not side:
                b.else_(block)
        b.end(block)
        found = b.get(choice)
        return b.op("NOT", found) if rng.random() < 0.4 else found

    if rng.random() < 0.3:
        loop = b.loop()
        with b.when(condition(3)):
            b.break_(loop)
        b.store("y", place, b.const(7))
        b.break_(loop)
        b.end(loop)
    block = b.if_(condition(3))
    b.store("y", place, b.const(9))
    if rng.random() < 0.2:
        b.else_(block)
        b.store("y", place, b.const(8))
    b.end(block)
    return b.kernel()


def guards(seed: int) -> Kernel:
    """Conditions of a thread's index, a counter, `n` and constants: as IFs and early returns."""
    rng = random.Random(seed)
    b = Builder("guards", "y: int32*, n: int32")
    numbers = [-(2**31), -(2**31) + 1, -3, -1, 65536, 2**31 - 2, 2**31 - 1, *range(13)]
    i, n = b.index(), b.params["n"]
    loop = b.range(b.const(0), b.const(rng.choice([1, 4])), b.const(1))
    factors = [1, 2, 3, 5, 2**28, 2**30, -2]
    amounts = {"SHL": [0, 1, 2, 29, 31, 33], "SHR": [0, 1, 31, 33], "AND": [-4, -1, -(2**31), 3],
               "MUL": factors, "FLOORDIV": factors, "TRUNCDIV": factors,
               "ADD": numbers, "SUB": numbers}  # fmt: skip

    def index() -> UOp:
        made = rng.choice([i, b.special("thread_idx"), loop])
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            op = rng.choice([*amounts])
            own = op in ("ADD", "SUB", "MUL", "FLOORDIV") and rng.random() < 0.3
            pair = [made, rng.choice([n, loop]) if own else b.const(rng.choice(amounts[op]))]
            made = b.op(op, *(pair[::-1] if op in ("ADD", "MUL") and rng.random() < 0.3 else pair))
        return made

    def condition(depth: int) -> UOp:
        if depth and rng.random() < 0.5:
            op = rng.choice(["AND", "OR", "NOT"])
            return b.op(op, *(condition(depth - 1) for _ in range(1 + (op != "NOT"))))
        pair = [index(), rng.choice([n, b.const(rng.choice(numbers)), b.special("block_idx")])]
        if rng.random() < 0.3:
            pair = [b.cast(side, int64) for side in pair]
        rng.shuffle(pair)
        return b.op(rng.choice(["LT", "LE", "GT", "GE", "EQ", "NE"]), *pair)

    blocks = []
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.3:
            with b.when(condition(2)):
                b.return_()
        else:
            blocks.append(b.if_(condition(2)))
    b.store("y", i, b.op("ADD", b.op("MUL", b.load("y", i), b.const(3)), loop))
    for block in (*reversed(blocks), loop):
        b.end(block)
    return b.kernel()

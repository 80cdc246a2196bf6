"""Draws kernels with barriers whose threads do not race.

Between two barriers an array belongs to its writers (each thread reads and writes its own elements)
or to its readers (anybody reads anything). Loops and IFs that hold barriers depend on values that
all threads share, anything else on whatever there is.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import Any

from builder import Builder

from hal_core.dtypes import int32
from hal_kernel.ir import Kernel, UOp

MOST_THREADS = 3  # a block; alone, a thread sees at once what it wrote
BLOCKS = 2
SIZE = 2 * MOST_THREADS  # elements of a shared array, and a block's part of `y`
OWN, READ, NOBODY = "own", "read", "nobody"
BINARY = ("ADD", "SUB", "MUL", "MIN", "MAX", "XOR", "AND", "FLOORDIV")


class Generator:
    def __init__(self, rng: random.Random, barriers: bool = True) -> None:
        self.rng = rng
        self.threads = self.pick([MOST_THREADS, MOST_THREADS, 1])
        self.b = b = Builder("generated", "y: int32*, x: const int32*, n: int32")
        self.arrays = [b.add("SHARED", int32, arg=(name, SIZE)) for name in "st"]
        self.mode = dict.fromkeys(self.arrays, OWN)
        self.thread, self.index = b.special("thread_idx"), b.special("global_idx")
        self.same = [b.params["n"], b.special("block_idx"), b.const(1)]  # in all threads
        self.own = [self.thread, self.index]
        self.same_variables = [b.var("u", self.same[0]), b.var("v", self.same[2])]
        self.own_variables = [b.var("p", self.index), b.var("q", b.const(7))]
        self.locked: set[UOp] = set()  # variables that count a loop's turns
        self.uniform = True  # all threads of the block come along
        self.may_return = False  # one by one: no barrier follows
        self.barriers = barriers
        self.loops: list[tuple[UOp, bool]] = []  # and whether all threads are in step there

    def pick(self, choices: Any) -> Any:
        return self.rng.choice(choices)

    def chance(self, percent: int) -> bool:
        return self.rng.randint(0, 99) < percent

    # values

    def shared_value(self) -> UOp:
        """The same in all threads."""
        kind = self.rng.randint(0, 9)
        if kind <= 2:
            return self.b.get(self.pick(self.same_variables))
        if kind == 3:
            return self.b.const(self.rng.randint(-3, 9))
        if kind == 4 and self.uniform:
            readable = [a for a in self.arrays if self.mode[a] == READ]
            place = self.b.const(self.rng.randint(0, SIZE - 1))
            if self.threads == 1 and self.chance(70):
                first = self.b.op("MUL", self.b.special("block_idx"), self.b.const(SIZE))
                self.b.store("y", first, self.pick(self.own[-6:]))
                return self.b.load("y", first)
            if readable:
                return self.b.add("LOAD", int32, self.pick(readable), place)
            return self.b.load("x", place)
        return self.pick(self.same[-6:])

    def value(self) -> UOp:
        kind = self.rng.randint(0, 11)
        if kind <= 3:
            return self.pick(self.own[-6:])
        if kind <= 5:
            return self.shared_value()
        if kind <= 7:
            return self.b.get(self.pick(self.own_variables))
        if kind == 8:
            return self.b.load("x", self.index)
        if kind == 9:
            return self.b.load("y", self.place("y"))
        array = self.pick(self.arrays)
        if self.mode[array] == NOBODY:
            return self.b.const(5)
        return self.b.add("LOAD", int32, array, self.place(array))

    def place(self, array: Any) -> UOp:
        """An index that this thread may read in `array` now."""
        b = self.b
        if array == "y":
            start = b.op("MUL", b.special("block_idx"), b.const(SIZE))
            own = b.op("ADD", start, b.special("thread_idx"))
            return b.op("ADD", own, b.const(self.pick([0, MOST_THREADS])))
        if self.mode[array] == OWN:
            return b.op("ADD", self.thread, b.const(self.pick([0, MOST_THREADS])))
        turned = b.op("ADD", self.thread, b.const(self.rng.randint(0, SIZE)))
        return b.op("MOD", turned, b.const(SIZE))

    def condition(self, value: UOp) -> UOp:
        limit = self.b.const(self.rng.randint(-1, 4))
        return self.b.op(self.pick(["LT", "GE", "EQ", "NE"]), value, limit)

    # statements

    @contextmanager
    def scope(self, uniform: bool) -> Any:
        outer = self.uniform, list(self.same), list(self.own)
        self.uniform = self.uniform and uniform
        yield
        self.uniform, self.same, self.own = outer

    def free_variables(self) -> list[UOp]:
        """Those that all threads may set to one value: none once some may have ended."""
        if not self.uniform or self.may_return:
            return []
        return [variable for variable in self.same_variables if variable not in self.locked]

    def barrier(self) -> None:
        """With something to say before it, and something to hear or to remember behind it."""
        for array in self.arrays:
            if self.mode[array] == OWN and self.chance(50):
                self.b.add("STORE", None, array, self.place(array), self.value())
        kept = [self.value() for _ in range(2)]
        self.b.add("BARRIER")
        self.mode = {array: self.pick([OWN, READ]) for array in self.arrays}
        for array in self.arrays:
            if self.chance(50):
                self.own.append(self.b.add("LOAD", int32, array, self.place(array)))
        if self.chance(50):
            self.statement(0)
            self.b.store("y", self.place("y"), self.b.op("ADD", *kept))

    def statement(self, depth: int) -> None:
        b, kind = self.b, self.rng.randint(0, 15 if depth else 8)
        uniform = self.uniform
        if kind <= 1:
            op = self.pick(BINARY)
            if self.chance(30):
                self.same.append(b.op(op, self.shared_value(), self.shared_value()))
            elif self.chance(50):
                self.own.append(self.value())
            else:
                self.own.append(b.op(op, self.value(), self.value()))
        elif kind == 2:
            free = self.free_variables()
            if free:
                variable = self.pick(free)
                if self.chance(50):  # what some threads still read
                    block = b.if_(self.condition(self.value()))
                    b.set(self.own_variables[0], b.get(variable))
                    b.end(block)
                b.set(variable, self.shared_value())
        elif kind <= 4:
            b.set(self.pick(self.own_variables), self.value())
        elif kind == 5:
            b.store("y", self.place("y"), self.value())
        elif kind <= 7:
            owned = [a for a in self.arrays if self.mode[a] == OWN]
            if owned:
                array = self.pick(owned)
                b.add("STORE", None, array, self.place(array), self.value())
        elif kind == 8:
            self.leave()
        elif kind <= 11:
            self.branch(depth, uniform and self.chance(60))
        elif kind <= 14:
            self.loop(depth, uniform and self.chance(60))
        if self.barriers and self.uniform and self.chance(20) and not self.may_return:
            self.barrier()

    def leave(self) -> None:
        """Under an IF: BREAK, CONTINUE or RETURN, for all threads or for some."""
        b = self.b
        loop, in_step = self.loops[-1] if self.loops else (None, True)
        ops = ["RETURN"] if loop is None else ["BREAK", "CONTINUE", "RETURN"]
        op = self.pick(ops)
        alone = self.may_return if op == "RETURN" else not in_step
        if not alone and not self.uniform:
            return
        block = b.if_(self.condition(self.value() if alone else self.shared_value()))
        with self.scope(not alone):
            b.set(self.pick(self.own_variables), self.value())
            b.store("y", self.place("y"), self.value())
        b.add(op, None, *(() if op == "RETURN" or loop is None else (loop,)))
        b.end(block)

    def branch(self, depth: int, uniform: bool) -> None:
        b, before = self.b, dict(self.mode)
        value = self.shared_value() if uniform else self.value()
        block = b.if_(self.condition(value))
        with self.scope(uniform):
            self.body(depth - 1)
        after = self.mode
        self.mode = before
        if self.chance(50):
            b.else_(block)
            with self.scope(uniform):
                self.body(depth - 1)
        self.mode = _meet(after, self.mode)
        b.end(block)

    def loop(self, depth: int, uniform: bool) -> None:
        b, before = self.b, dict(self.mode)
        if uniform:  # another turn follows the last access of the one before
            self.mode = dict.fromkeys(self.arrays, NOBODY)
        if self.chance(60):
            stop = b.op("AND", self.shared_value() if uniform else self.value(), b.const(3))
            loop = b.range(b.const(0), stop, b.const(1), "k")
            with self.scope(uniform):
                (self.same if uniform else self.own).append(loop)
                self.turn(loop, depth, uniform)
                b.add("ENDRANGE", None, loop)
        else:
            self.while_loop(depth, uniform)
        self.mode = _meet(before, self.mode) if uniform else before

    def while_loop(self, depth: int, uniform: bool) -> None:
        b = self.b
        free = self.free_variables() if uniform else []
        counter = free[0] if free else b.var("w", b.const(0))
        uniform = bool(free)
        b.set(counter, b.const(0))
        self.locked.add(counter)
        loop = b.add("LOOP")
        block = b.if_(b.op("GE", b.get(counter), b.const(self.rng.randint(0, 3))))
        b.add("BREAK", None, loop)
        b.end(block)
        b.set(counter, b.op("ADD", b.get(counter), b.const(1)))
        with self.scope(uniform):
            self.turn(loop, depth, uniform)
            b.add("ENDLOOP", None, loop)
        self.locked.discard(counter)

    def turn(self, loop: UOp, depth: int, uniform: bool) -> None:
        self.loops.append((loop, uniform))
        if uniform and self.barriers and self.chance(70) and not self.may_return:
            self.barrier()
        self.body(depth - 1)
        self.loops.pop()

    def body(self, depth: int) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.statement(depth)

    def kernel(self) -> Kernel:
        b = self.b
        for _ in range(self.rng.randint(1, 6)):
            self.statement(2)
        if self.chance(40):  # from here on threads may end one by one
            block = b.if_(self.condition(self.shared_value()))
            with self.scope(True):
                self.body(2)
                self.may_return = True
                self.body(2)
            self.mode = dict.fromkeys(self.arrays, NOBODY)
            b.end(block)
        for _ in range(self.rng.randint(0, 3)):
            self.statement(2)
        for number, variable in enumerate(self.own_variables + self.same_variables):
            place = self.place("y")
            old = b.op("MUL", b.load("y", place), b.const(3 + number))
            b.store("y", place, b.op("XOR", old, b.get(variable)))
        return b.kernel(block=(self.threads, 1, 1))


def _meet(first: dict[UOp, str], second: dict[UOp, str]) -> dict[UOp, str]:
    return {array: mode if second[array] == mode else NOBODY for array, mode in first.items()}


def drawn(seed: int, barriers: bool = True) -> Kernel:
    return Generator(random.Random(seed), barriers).kernel()

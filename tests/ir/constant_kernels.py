"""Random kernels in which much is known before any thread runs."""

from __future__ import annotations

import random

from builder import Builder

from hal_core.dtypes import (
    DType,
    bool_,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint64,
)
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.uop import ARITHMETIC, BITWISE, COMPARISON, INTEGER_BINARY

THREADS = 4
PLACES = 8  # of each thread in each buffer
DTYPES = (int32, int8, uint8, int64, uint64, float32, float64, bool_)
NAMES = {dtype: f"out_{dtype.name}" for dtype in DTYPES}
SIGNATURE = ", ".join(f"{name}: {dtype.name}*" for dtype, name in NAMES.items()) + ", a: int32"
INTEGER_OPS = sorted(ARITHMETIC | BITWISE | INTEGER_BINARY)
FLOAT_OPS = [*sorted(ARITHMETIC), "DIV"]
SPECIAL = {
    "f": [0.0, -0.0, 0.5, 1.0, -1.5, 3e38, 1e-38, 1e-45, 2.5, 1e300, float("inf"), float("nan")],
    "b": [False, True],
}


class Author:
    """Writes one kernel. Every thread stays in elements of its own."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        fixed = rng.random() < 0.5
        self.block = (THREADS, 1, 1) if fixed else None
        self.b = Builder("random", SIGNATURE)
        self.own = self.b.index()
        self.variables: list[UOp] = []
        self.values: list[list[UOp]] = [[]]  # of each open block
        self.loops: list[UOp] = []

    def kernel(self) -> Kernel:
        for _ in range(3):
            self.declare()
        if not self.statements(2, 5):
            for variable in self.variables:
                self.store(variable.dtype, self.b.get(variable))
        return self.b.kernel(block=self.block)

    def declare(self) -> None:
        dtype = self.rng.choice(DTYPES)
        value = self.constant(dtype) if self.rng.random() < 0.7 else self.value(dtype)
        self.variables.append(self.b.var(f"v{len(self.variables)}", value))

    # -- values

    def constant(self, dtype: DType) -> UOp:
        choices = SPECIAL.get(dtype.kind)
        if choices is None:
            near = self.rng.randint(max(int(dtype.min), -3), 3)
            choices = [0, 1, near, near, int(dtype.min), int(dtype.max)]
        return self.b.const(self.rng.choice(choices), dtype)

    def value(self, dtype: DType, depth: int = 3) -> UOp:
        made = self._value(dtype, depth)
        self.values[-1].append(made)
        if self.rng.random() < 0.2:  # else a wrong value is often lost on its way
            self.store(dtype, made)
        return made

    def _value(self, dtype: DType, depth: int) -> UOp:
        rng, b = self.rng, self.b
        kind = rng.random()
        if depth == 0 or kind < 0.3:
            return self.constant(dtype)
        known = [v for block in self.values for v in block if v.dtype is dtype]
        if kind < 0.4 and known:
            return rng.choice(known)
        if kind < 0.5:
            variables = [v for v in self.variables if v.dtype is dtype]
            return b.get(rng.choice(variables)) if variables else self.constant(dtype)
        if kind < 0.56:
            return b.load(NAMES[dtype], self.place())
        if kind < 0.66:
            return b.cast(self.value(rng.choice(DTYPES), depth - 1), dtype)
        if kind < 0.7:
            return self.odd(dtype)
        if kind < 0.76:
            condition = self.value(bool_, depth - 1)
            pair = [self.value(dtype, depth - 1) for _ in range(2)]
            return b.add("WHERE", dtype, condition, *pair)
        if dtype is bool_:
            return self.truth(depth - 1)
        if kind < 0.82:
            ops = ["NEG", "ABS", "NOT"]
            if dtype.is_float:
                ops = ["NEG", "ABS", "FLOOR", "CEIL", "TRUNC", "ROUND"]
            return b.op(rng.choice(ops), self.value(dtype, depth - 1))
        op = rng.choice(FLOAT_OPS if dtype.is_float else INTEGER_OPS)
        first = self.value(dtype, depth - 1)
        second = first if rng.random() < 0.1 else self.value(dtype, depth - 1)
        return b.op(op, first, second)

    def truth(self, depth: int) -> UOp:
        rng, b = self.rng, self.b
        if rng.random() < 0.3:
            parts = [self.value(bool_, depth) for _ in range(2)]
            return b.op(rng.choice(sorted(BITWISE)), *parts)
        if rng.random() < 0.2:
            return b.op("NOT", self.value(bool_, depth))
        if rng.random() < 0.2:
            return b.op("ISNAN", self.value(rng.choice((float32, float64)), depth))
        dtype = rng.choice(DTYPES)
        first = self.value(dtype, depth)
        second = first if rng.random() < 0.2 else self.value(dtype, depth)
        return b.op(rng.choice(sorted(COMPARISON)), first, second)

    def odd(self, dtype: DType) -> UOp:
        """What no other choice makes: bits, the launch's numbers."""
        b = self.b
        pairs = {float32: int32, float64: int64, int64: float64, uint64: float64, int32: float32}
        if dtype in pairs and self.rng.random() < 0.4:
            return b.add("BITCAST", dtype, self.number(pairs[dtype]))
        special = b.special(self.rng.choice(["thread_idx", "block_dim"]), self.rng.randint(0, 2))
        return b.cast(self.rng.choice([special, b.params["a"]]), dtype)

    def number(self, dtype: DType) -> UOp:
        """No NaN: its bits are nobody's business."""
        found = self.value(dtype, 1)
        if not dtype.is_float:
            return found
        return self.b.add("WHERE", dtype, self.b.op("ISNAN", found), self.b.const(1, dtype), found)

    def place(self) -> UOp:
        offset = self.b.const(THREADS * self.rng.randrange(PLACES))
        return self.b.op("ADD", self.own, offset)

    # -- statements

    def store(self, dtype: DType | None, value: UOp) -> None:
        self.b.store(NAMES[dtype], self.place(), value)  # type: ignore[index]

    def statements(self, depth: int, most: int) -> bool:
        """Write statements. Returns: the last one leaves the block, so nothing may follow."""
        self.values.append([])
        left = any(self.statement(depth) for _ in range(self.rng.randint(1, most)))
        self.values.pop()
        return left

    def statement(self, depth: int) -> bool:
        rng = self.rng
        kind = rng.random() if depth else rng.random() * 0.5
        if kind < 0.35:
            variable = rng.choice(self.variables)
            fixed = rng.random() < 0.5
            make = self.constant if fixed else self.value
            self.b.set(variable, make(variable.dtype))  # type: ignore[arg-type]
        elif kind < 0.45:
            dtype = rng.choice(DTYPES)
            self.store(dtype, self.value(dtype))
        elif kind < 0.5:
            return self.leave()
        elif kind < 0.75:
            self.choice(depth)
        elif kind < 0.88:
            self.counted(depth)
        else:
            self.endless(depth)
        return False

    def leave(self) -> bool:
        if self.rng.random() < 0.2:
            self.b.add("RETURN")
        elif self.loops:
            self.b.add(self.rng.choice(["BREAK", "CONTINUE"]), None, self.loops[-1])
        else:
            return False
        return True

    def choice(self, depth: int) -> None:
        opener = self.b.if_(self.value(bool_))
        self.statements(depth - 1, 3)
        if self.rng.random() < 0.5:
            self.b.else_(opener)
            self.statements(depth - 1, 3)
        self.b.end(opener)

    def counted(self, depth: int) -> None:
        rng, b = self.rng, self.b
        bounds = [b.const(rng.randint(-2, 2)) for _ in range(2)]
        if rng.random() < 0.3:
            bounds[1] = b.params["a"]
        loop = b.range(*bounds, b.const(rng.choice([1, 2, -1])))
        self.loops.append(loop)
        self.statements(depth - 1, 3)
        b.add("ENDRANGE", None, self.loops.pop())

    def endless(self, depth: int) -> None:
        """Left by a counter after a few turns, if by nothing else."""
        b = self.b
        turns = b.var("turns", b.const(0))
        loop = b.add("LOOP")
        count = b.op("ADD", b.get(turns), b.const(1))
        b.set(turns, count)
        end = b.if_(b.op("GT", count, b.const(self.rng.randint(0, 3))))
        b.add("BREAK", None, loop)
        b.end(end)
        self.loops.append(loop)
        self.statements(depth - 1, 3)
        if self.rng.random() < 0.2 and b.uops[-1].op not in ("BREAK", "CONTINUE", "RETURN"):
            b.add("BREAK", None, loop)
        b.add("ENDLOOP", None, self.loops.pop())

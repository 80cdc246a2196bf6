"""Runs kernel IR in plain Python, one thread after the other: what the tests compare with."""

from __future__ import annotations

import contextlib
import math
import struct
from typing import Any

from hal_core.dtypes import DType
from hal_core.ir import Kernel, UOp

BINARY = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "DIV": lambda a, b: a / b,
    "FLOORDIV": lambda a, b: a // b if b else 0,
    "MOD": lambda a, b: a % b if b else 0,
    "POW": math.pow,
    "ATAN2": math.atan2,
    "FMOD": math.fmod,
    "MIN": lambda a, b: b if b < a else a,
    "MAX": lambda a, b: b if b > a else a,
    "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b,
    "XOR": lambda a, b: a ^ b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}
UNARY = {
    "NEG": lambda a: -a,
    "ABS": abs,
    "SQRT": math.sqrt,
    "RSQRT": lambda a: 1 / math.sqrt(a),
    "EXP": math.exp,
    "EXP2": lambda a: 2.0**a,
    "LOG": math.log,
    "LOG2": math.log2,
    "SIN": math.sin,
    "COS": math.cos,
    "TAN": math.tan,
    "TANH": math.tanh,
    "ATAN": math.atan,
    "FLOOR": math.floor,
    "CEIL": math.ceil,
    "TRUNC": math.trunc,
    "ROUND": round,
    "ISNAN": math.isnan,
}


def run(kernel: Kernel, arguments: list[Any], threads: int) -> None:
    """`arguments` are lists and numbers in the order of the signature; lists are written to."""
    for thread in range(threads):
        _Thread(kernel, arguments, thread).run()


def held(value: Any, dtype: DType) -> Any:
    """`value` as `dtype` holds it: integers wrap, floats round."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.is_float:
        return struct.unpack(dtype.format, struct.pack(dtype.format, value))[0]
    bits = 8 * dtype.itemsize
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


def cast(value: Any, dtype: DType) -> Any:
    if isinstance(value, float) and dtype.is_integer:
        if math.isnan(value):
            return 0
        return int(max(dtype.min, min(dtype.max, value)))
    return held(value, dtype)


class _Left(Exception):
    """A BREAK, CONTINUE or RETURN on its way out; args: the op."""


class _Thread:
    def __init__(self, kernel: Kernel, arguments: list[Any], thread: int) -> None:
        self.uops, self.arguments, self.thread = kernel.uops, arguments, thread
        self.values: dict[int, Any] = {}
        self.ends: dict[int, dict[str, int]] = {}
        for position, node in enumerate(self.uops):
            if node.op in ("ELSE", "ENDIF", "ENDRANGE", "ENDLOOP"):
                self.ends.setdefault(id(node.src[0]), {})[node.op] = position

    def run(self) -> None:
        with contextlib.suppress(_Left):
            self.block(0, len(self.uops))

    def turn(self, start: int, stop: int) -> bool:
        """One turn of a loop. False: the last."""
        try:
            self.block(start, stop)
        except _Left as left:
            if left.args[0] == "RETURN":
                raise
            return bool(left.args[0] == "CONTINUE")
        return True

    def block(self, position: int, stop: int) -> None:
        while position < stop:
            node = self.uops[position]
            if node.op == "RANGE":
                end = self.ends[id(node)]["ENDRANGE"]
                for counter in range(*(self.values[id(part)] for part in node.src)):
                    self.values[id(node)] = counter
                    if not self.turn(position + 1, end):
                        break
                position = end
            elif node.op == "LOOP":
                end = self.ends[id(node)]["ENDLOOP"]
                while self.turn(position + 1, end):
                    pass
                position = end
            elif node.op in ("BREAK", "CONTINUE", "RETURN"):
                raise _Left(node.op)
            elif node.op == "IF":
                ends = self.ends[id(node)]
                middle = ends.get("ELSE", ends["ENDIF"])
                if self.values[id(node.src[0])]:
                    self.block(position + 1, middle)
                else:
                    self.block(middle + 1, ends["ENDIF"])
                position = ends["ENDIF"]
            else:
                self.step(node)
            position += 1

    def step(self, node: UOp) -> None:
        values = [self.values.get(id(part)) for part in node.src]
        if node.op == "SET":
            self.values[id(node.src[0])] = values[1]
        elif node.op == "STORE":
            self.at(values)[values[1]] = values[2]
        elif node.op not in ("VAR", "ENDRANGE", "ENDLOOP", "ENDIF", "ELSE"):
            self.values[id(node)] = self.compute(node, values)

    def at(self, values: list[Any]) -> list[Any]:
        if values[1] < 0:
            raise IndexError(values[1])
        memory: list[Any] = values[0]
        return memory

    def compute(self, node: UOp, values: list[Any]) -> Any:
        op, dtype = node.op, node.dtype
        if op == "PARAM":
            return self.arguments[node.arg]
        if dtype is None:
            raise TypeError(f"{node!r} has no dtype")
        if op == "CONST":
            return held(node.arg, dtype)
        if op == "SPECIAL":
            return {"global_idx": self.thread, "thread_idx": self.thread}.get(node.arg[0], 0)
        if op == "GET":
            if values[0] is None:
                raise LookupError(f"{node.src[0]!r} is read before it is set")
            return values[0]
        if op == "LOAD":
            return self.at(values)[values[1]]
        if op == "CAST":
            return cast(values[0], dtype)
        if op == "WHERE":
            return values[1] if values[0] else values[2]
        if op == "FMA":
            return held(values[0] * values[1] + values[2], dtype)
        if op == "NOT":
            return not values[0] if dtype.kind == "b" else held(~values[0], dtype)
        if op in ("SHL", "SHR"):
            amount = values[1] % (8 * dtype.itemsize)
            return held(values[0] << amount if op == "SHL" else values[0] >> amount, dtype)
        return held((BINARY.get(op) or UNARY[op])(*values), dtype)

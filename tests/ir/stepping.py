"""Runs kernels, and what `at_barriers` makes of them, one block at a time, in plain Python.

A kernel's threads step from barrier to barrier. A split kernel runs once, and a region of it once a
thread, in any order. All is int32 or bool, and int64 in bounds; to read what was not written is a
KeyError. A SPILL that was not written holds some number.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from hal_core.dtypes import DType, bool_
from hal_kernel.ir import UOp

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "FLOORDIV": lambda a, b: a // b if b else 0,
    "MOD": lambda a, b: a % b if b else 0,
    "TRUNCDIV": lambda a, b: math.trunc(Fraction(a, b)) if b else 0,
    "TRUNCMOD": lambda a, b: a - b * math.trunc(Fraction(a, b)) if b else 0,
    "MIN": min,
    "MAX": max,
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

Memory = dict[Any, list[int]]  # by position of a PARAM, or by SHARED node
Values = dict[UOp, Any]
Steps = Iterator[str]


def held(value: Any, dtype: DType) -> Any:
    """`value` as a bool or an integer with a sign."""
    half = 1 << (8 * dtype.itemsize - 1)
    return bool(value) if dtype is bool_ else (int(value) + half) % (2 * half) - half


def listing(uops: Sequence[UOp]) -> str:
    """For people: a line a node."""
    names = {node: f"%{number}" for number, node in enumerate(uops)}
    lines, depth = [], 0
    for node in uops:
        depth -= node.op in ("ENDTHREADS", "ENDRANGE", "ENDLOOP", "ENDIF", "ELSE")
        sources = " ".join(names[source] for source in node.src)
        arg = "" if node.arg is None else f" {node.arg}"
        lines.append(f"{'  ' * depth}{names[node]} {node.op}{arg} {sources}")
        depth += node.op in ("THREADS", "RANGE", "LOOP", "IF", "ELSE")
    return "\n".join(lines)


class Block:
    """One block of `threads` threads along x; `memory` is written to."""

    def __init__(
        self, uops: Sequence[UOp], memory: Memory, values: dict[int, int], block: int, threads: int
    ) -> None:
        self.uops, self.block, self.threads = uops, block, threads
        self.memory, self.arguments = dict(memory), values
        self.at = {node: position for position, node in enumerate(uops)}
        self.middle: dict[UOp, int] = {}
        self.end: dict[UOp, int] = {}
        self.spilled: dict[tuple[UOp, int], Any] = {}
        self.seen: list[tuple[int, UOp, Any]] = []  # (thread, node, value) where it is asked for
        self.watch = False
        for position, node in enumerate(uops):
            if node.op == "ELSE":
                self.middle[node.src[0]] = position
            elif node.op in ("ENDIF", "ENDRANGE", "ENDLOOP", "ENDTHREADS"):
                self.end[node.src[0]] = position
            elif node.op == "SHARED":
                self.memory[node] = [0] * node.arg[1]

    # the original: threads from barrier to barrier

    def run(self) -> None:
        waiting = {thread: self.steps({}, thread) for thread in range(self.threads)}
        while waiting:
            reached = {
                thread: next((stop for stop in steps if stop == "BARRIER"), None)
                for thread, steps in waiting.items()
            }
            if len(set(reached.values())) > 1:
                raise RuntimeError(f"some threads wait for others at a barrier: {reached}")
            waiting = {t: steps for t, steps in waiting.items() if reached[t]}

    # what split makes of it

    def run_split(self, order: str, seed: int = 0) -> None:
        rng = random.Random(seed)
        for node, outer in self.steps_outside():
            threads = [*range(self.threads)]
            if order == "reversed":
                threads.reverse()
            elif order != "forward":
                rng.shuffle(threads)
            first, last = self.at[node] + 1, self.end[node]
            made = [self.steps(dict(outer), thread, first, last) for thread in threads]
            if order == "interleaved":
                while made:
                    made = [steps for steps in made if next(steps, None)]
            else:
                for steps in made:
                    for _ in steps:
                        pass

    def steps_outside(self) -> Iterator[tuple[UOp, Values]]:
        outer: Values = {}
        for stop in self.steps(outer, None):
            if isinstance(stop, UOp):
                yield stop, outer

    # one thread

    def steps(
        self, values: Values, thread: int | None, position: int = 0, last: int | None = None
    ) -> Iterator[Any]:
        """Yields at barriers, at accesses of memory, and a THREADS node that is reached."""
        last = len(self.uops) if last is None else last
        counters: dict[UOp, Iterator[int]] = {}
        while position < last:
            node = self.uops[position]
            op = node.op
            if op in ("BARRIER", "LOAD", "STORE", "ATOMIC"):
                yield op
            if op == "THREADS":
                yield node
                position = self.end[node]
            elif op in _JUMPS:
                position = _JUMPS[op](self, node, values, counters, position)
            else:
                self.step(node, values, thread)
            position += 1

    def step(self, node: UOp, values: Values, thread: int | None) -> None:
        op = node.op
        if op in ("VAR", "SPILL", "BARRIER", "SHARED", "ASSERT", "ENDIF", "PARAM"):
            if op == "PARAM" and node.arg in self.arguments:
                values[node] = self.arguments[node.arg]
            return
        if op == "SET":
            where, value = node.src
            if where.op == "SPILL":
                if thread is None:
                    raise RuntimeError("a SPILL is set outside of THREADS")
                self.spilled[where, thread] = values[value]
            else:
                values[where] = values[value]
            return
        if op in ("LOAD", "STORE", "ATOMIC"):
            key = node.src[0] if node.src[0].op == "SHARED" else node.src[0].arg
            memory, index = self.memory[key], values[node.src[1]]
            if not 0 <= index < len(memory):
                raise IndexError(f"{node!r} at {index} of {len(memory)}")
            old = memory[index]
            if op != "LOAD":
                added = values[node.src[2]] + (old if op == "ATOMIC" else 0)
                memory[index] = held(added, node.src[2].dtype)  # type: ignore[arg-type]
            values[node] = old
        else:
            values[node] = self.compute(node, values, thread)
        if self.watch and thread is not None:
            self.seen.append((thread, node, values[node]))

    def compute(self, node: UOp, values: Values, thread: int | None) -> Any:
        op, dtype = node.op, node.dtype
        if dtype is None:
            raise AssertionError(f"{node!r} is not a value")
        if op == "CONST":
            return node.arg
        if op == "GET":
            where = node.src[0]
            # A thread may fetch what only others have set, if it does not use it.
            unset = dtype is bool_ or 0x55AA55A
            return (
                self.spilled.get((where, thread), unset) if where.op == "SPILL" else values[where]
            )  # type: ignore[arg-type]
        if op == "SPECIAL":
            kind = node.arg[0]
            if kind in ("thread_idx", "global_idx"):
                if thread is None:
                    raise AssertionError("a thread's own index outside of THREADS")
                return thread + (self.block * self.threads if kind == "global_idx" else 0)
            return {"block_idx": self.block, "block_dim": self.threads, "grid_dim": 2}[kind]
        operands = [values[source] for source in node.src]
        if op == "CAST":
            return held(operands[0], dtype)
        if op == "WHERE":
            return operands[1] if operands[0] else operands[2]
        if op == "NOT":
            return not operands[0]
        return held(BINARY[op](*operands), dtype)


Jump = Callable[[Block, UOp, Values, "dict[UOp, Iterator[int]]", int], int]


def _if(block: Block, node: UOp, values: Values, counters: Any, position: int) -> int:
    return position if values[node.src[0]] else block.middle.get(node, block.end[node])


def _range(block: Block, node: UOp, values: Values, counters: Any, position: int) -> int:
    counters[node] = iter(range(*(values[source] for source in node.src)))
    return _turn(block, node, values, counters)


def _turn(block: Block, loop: UOp, values: Values, counters: Any) -> int:
    """To the first node of the next turn, or past the end."""
    if loop.op == "RANGE":
        counter = next(counters[loop], None)
        if counter is None:
            return block.end[loop]
        values[loop] = counter
    return block.at[loop]


_JUMPS: dict[str, Jump] = {
    "IF": _if,
    "ELSE": lambda block, node, values, counters, at: block.end[node.src[0]],
    "RANGE": _range,
    "LOOP": lambda block, node, values, counters, at: at,
    "ENDRANGE": lambda block, node, values, counters, at: _turn(
        block, node.src[0], values, counters
    ),
    "ENDLOOP": lambda block, node, values, counters, at: block.at[node.src[0]],
    "CONTINUE": lambda block, node, values, counters, at: _turn(
        block, node.src[0], values, counters
    ),
    "BREAK": lambda block, node, values, counters, at: block.end[node.src[0]],
    "RETURN": lambda block, node, values, counters, at: len(block.uops),
}

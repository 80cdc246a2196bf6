"""How much one thread of a kernel does: enough to decide whether a launch is worth splitting."""

from __future__ import annotations

import operator
from collections.abc import Callable

from hal_core.ir.uop import STRUCTURE, Kernel, UOp

_FREE = STRUCTURE | {"PARAM", "CONST", "VAR", "SPECIAL", "SHARED", "BARRIER", "ASSERT"}


def operations_per_thread(kernel: Kernel) -> int | None:
    """The nodes one thread executes, both sides of an IF counted.

    None when how often a loop turns is known only at the launch.
    """
    total, trips, outer = 0, 1, []
    for node in kernel.uops:
        if node.op == "LOOP":
            return None
        if node.op == "RANGE":
            count = _trip_count(node)
            if count is None:
                return None
            outer.append(trips)
            trips *= count
        elif node.op == "ENDRANGE":
            trips = outer.pop()
        elif node.op not in _FREE:
            total += trips
    return total


def _trip_count(loop: UOp) -> int | None:
    start, stop, step = (_constant(node) for node in loop.src)
    if start is None or stop is None or not step:
        return None
    return max(0, -((start - stop) // step))  # len(range(...)) overflows at int64 bounds


def _constant(node: UOp) -> int | None:
    """`r = 2` and `range(-r, r + 1)` are constants too."""
    if node.op == "CONST":
        return int(node.arg)
    fold = _FOLDS.get(node.op)
    values = [_constant(part) for part in node.src] if fold else []
    known = [value for value in values if value is not None]
    return fold(*known) if fold and len(known) == len(values) else None


_FOLDS: dict[str, Callable[..., int]] = {
    "NEG": operator.neg,
    "ADD": operator.add,
    "SUB": operator.sub,
    "MUL": operator.mul,
}

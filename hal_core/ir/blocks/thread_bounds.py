"""Find the conditions that bound the loop over the threads of a region along x.

    for t in range(block):          for t in range(min(block, half)):
        if t < half:         ->         s[t] += s[t + half]
            s[t] += s[t + half]

Threads that would do nothing are not run, and a loop without a test is vectorised without masks.
"""

from __future__ import annotations

from typing import NamedTuple

from hal_core.dtypes import int32
from hal_core.ir.uop import UOp

_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
_X = (("thread_idx", 0), ("global_idx", 0))
_EFFECTS = frozenset(
    {"IF", "RANGE", "LOOP", "LOAD", "GET", "SET", "STORE", "ATOMIC", "CAS", "RETURN", "ASSERT"}
)


class Limit(NamedTuple):
    """A condition that only the first threads along x fulfil: `number < end` or `number <= end`."""

    test: UOp
    number: UOp  # thread_idx(0) or global_idx(0)
    end: UOp  # a constant, or a value computed outside of the region
    inclusive: bool


def limits(uops: tuple[UOp, ...]) -> dict[UOp, list[Limit]]:
    """Return the limits of each THREADS that has any, from the outermost IF inwards."""
    found: dict[UOp, list[Limit]] = {}
    region: list[UOp] = []
    for node in uops:
        if node.op == "THREADS":
            region = [node]
        elif node.op == "ENDTHREADS":
            known = _limits_of(region[1:])
            if known:
                found[region[0]] = known
            region = []
        elif region:
            region.append(node)
    return found


def _limits_of(region: list[UOp]) -> list[Limit]:
    """Return the limits in the IFs that enclose all effects, from the outermost inwards."""
    found: list[Limit] = []
    here = set(region)
    with_else = {node.src[0] for node in region if node.op == "ELSE"}
    starts = (node for node in region if node.op in _EFFECTS)
    # Each effect must be an IF that the last node not yet paired closes: nothing stands beside it.
    for block, end in zip(starts, reversed(region), strict=False):
        if block.op != "IF" or block in with_else or end.op != "ENDIF" or end.src[0] is not block:
            break
        conditions = [block.src[0]]
        while conditions:
            condition = conditions.pop()
            if condition.op == "AND":
                conditions += condition.src
            limit = _limit(condition, here) if condition.op in _MIRRORED else None
            if limit:
                found.append(limit)
    return found


def _limit(test: UOp, here: set[UOp]) -> Limit | None:
    op, (number, end) = test.op, test.src
    if end.op == "SPECIAL" and end.arg in _X:  # `n > i`
        op, number, end = _MIRRORED[op], end, number
    if number.op != "SPECIAL" or number.arg not in _X or op not in ("LT", "LE"):
        return None
    if end in here and end.op != "CONST":  # computed in the loop: not known at its start
        return None
    return Limit(test, number, end, op == "LE") if end.dtype is int32 else None

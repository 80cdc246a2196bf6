"""How far the loop over a region's threads along x has to go.

`if t < half:` and `if i < n:` around all that a region does end the loop: what does not run needs
no test, and a loop without one is vectorised without masks.
"""

from __future__ import annotations

from typing import NamedTuple

from hal_core.dtypes import int32
from hal_core.ir.uop import UOp

_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
_X = (("thread_idx", 0), ("global_idx", 0))


class Limit(NamedTuple):
    """Threads for which `test` holds run: their number along x is below `end` (or is `end`)."""

    test: UOp
    number: UOp  # thread_idx(0) or global_idx(0)
    end: UOp  # from outside
    inclusive: bool


def limits(uops: tuple[UOp, ...]) -> dict[UOp, list[Limit]]:
    """Of each THREADS that has any."""
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
    """Of the IFs that hold all that happens, from the outermost inwards."""
    found: list[Limit] = []
    here = set(region)
    halved = {node.src[0] for node in region if node.op == "ELSE"}
    starts = (node for node in region if node.op in _HAPPENS)
    for block, end in zip(starts, reversed(region), strict=False):
        if block.op != "IF" or block in halved or end.op != "ENDIF" or end.src[0] is not block:
            break
        found += _tests(block.src[0], here)
    return found


_HAPPENS = frozenset(
    {"IF", "RANGE", "LOOP", "LOAD", "GET", "SET", "STORE", "ATOMIC", "CAS", "RETURN", "ASSERT"}
)


def _tests(condition: UOp, here: set[UOp]) -> list[Limit]:
    """Those of a chain of ANDs."""
    found, waiting = [], [condition]
    while waiting:
        node = waiting.pop()
        if node.op == "AND":
            waiting += node.src
        limit = _limit(node, here) if node.op in _MIRRORED else None
        if limit:
            found.append(limit)
    return found


def _limit(test: UOp, here: set[UOp]) -> Limit | None:
    op, (number, end) = test.op, test.src
    if end.op == "SPECIAL" and end.arg in _X:
        op, number, end = _MIRRORED[op], end, number
    if number.op != "SPECIAL" or number.arg not in _X or op not in ("LT", "LE"):
        return None
    if end in here and end.op != "CONST":
        return None
    return Limit(test, number, end, op == "LE") if end.dtype is int32 else None

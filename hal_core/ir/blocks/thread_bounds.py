"""Find the conditions that bound the loop over the threads of a region along x.

    for t in range(block):              for t in range(1, min(block, n - 1)) if j > 0 else ():
        if 0 < t < n - 1 and j > 0: ->      y[t] = x[t - 1] + x[t + 1]
            y[t] = x[t - 1] + x[t + 1]

Threads that would do nothing are not run, and a loop without a test is vectorised without masks.
A condition that is the same for all threads of a row decides whether the row runs. One that
compares a thread's index along x, with or without a constant added, with a value that is the same
for the row is a start or an end of the loop. Any other stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hal_core.dtypes import int32, int64
from hal_core.geometry import MOST_ADDED
from hal_core.ir.blocks.hoisting import PURE
from hal_core.ir.uop import UOp

_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ"}
_OPPOSITE = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "NE": "EQ"}
_X = (("thread_idx", 0), ("global_idx", 0))
_EFFECTS = frozenset(
    {"IF", "RANGE", "LOOP", "LOAD", "GET", "SET", "STORE", "ATOMIC", "CAS", "RETURN", "ASSERT"}
)
_LEAST_ADDED = -(2**31 - 1)


class Limit(NamedTuple):
    """A comparison that holds for each thread with any effect: `number + added OP end`."""

    number: UOp  # thread_idx(0) or global_idx(0)
    added: int
    op: str  # LT, LE, GT, GE or EQ
    end: UOp  # an int32 or int64, the same for all threads of a row


class Bounds(NamedTuple):
    """What holds for each thread of a region that has any effect. The others need not run."""

    limits: list[Limit]
    rows: list[tuple[UOp, bool]]  # conditions that are the same for a row, and what they must be
    known: dict[UOp, bool]  # all these conditions, which need no test in the loop
    early: list[UOp]  # the nodes of the region that they depend on, to run ahead of the loop over x


def bounds(uops: tuple[UOp, ...]) -> dict[UOp, Bounds]:
    """Return the bounds of each THREADS that has any."""
    found: dict[UOp, Bounds] = {}
    region: list[UOp] = []
    for node in uops:
        if node.op == "THREADS":
            region = [node]
        elif node.op == "ENDTHREADS":
            known = _Region(region[1:]).bounds()
            if known.known:
                found[region[0]] = known
            region = []
        elif region:
            region.append(node)
    return found


def joins_blocks(uops: tuple[UOp, ...]) -> bool:
    """Tell whether blocks that are neighbours along x may run as one, with longer loops.

    A thread then knows its global index only, and nothing is kept for each block.
    """
    structure = [node.op for node in uops if node.op in ("THREADS", "ENDTHREADS", "SHARED")]
    others = (node.arg[0] for node in uops if node.op == "SPECIAL")
    return (
        structure == ["THREADS", "ENDTHREADS"]
        and all(node.op in ("PARAM", "CONST") for node in uops[: _first_region(uops)])
        and not any(kind in ("thread_idx", "block_idx") for kind in others)
    )


def _first_region(uops: tuple[UOp, ...]) -> int:
    return next(n for n, node in enumerate(uops) if node.op == "THREADS")


class _Region:
    """The nodes between a THREADS and its ENDTHREADS."""

    def __init__(self, nodes: list[UOp]) -> None:
        self.nodes, self.inside = nodes, set(nodes)
        self.differing: set[UOp] = set()  # nodes that may have different values in a row
        for node in nodes:
            if not self._is_of_row(node):
                self.differing.add(node)

    def _is_of_row(self, node: UOp) -> bool:
        if node.op == "SPECIAL":
            return node.arg not in _X
        # A region sets no variable that was declared outside of it; a SPILL is no variable.
        if node.op == "GET" and node.src[0].op != "VAR":
            return False
        if node.op not in PURE and node.op not in ("CONST", "GET"):
            return False
        return self.differing.isdisjoint(node.src)

    def bounds(self) -> Bounds:
        found = Bounds([], [], {}, [])
        needed: list[UOp] = []
        for test, holds in self._conditions():
            if test not in self.differing:
                found.rows.append((test, holds))
                needed.append(test)
            elif (limit := self._limit(test, holds)) is not None:
                found.limits.append(limit)
                needed.append(limit.end)
            else:
                continue
            found.known[test] = holds
        early: set[UOp] = set()
        while needed:
            node = needed.pop()
            if node in self.inside and node not in early:
                early.add(node)
                needed += node.src
        found.early.extend(node for node in self.nodes if node in early)
        return found

    def _conditions(self) -> Iterator[tuple[UOp, bool]]:
        """Yield what must hold for a thread to have an effect: conditions and what they must be."""
        for guard in self._guards():
            pending = [(guard, True)]
            while pending:
                test, holds = pending.pop()
                if test not in self.differing:
                    yield test, holds
                elif test.op == "NOT":
                    pending.append((test.src[0], not holds))
                elif test.op == ("AND" if holds else "OR"):
                    pending += [(part, holds) for part in test.src]
                else:
                    yield test, holds

    def _guards(self) -> Iterator[UOp]:
        """Yield the conditions of the IFs that enclose all effects, from the outermost inwards."""
        with_else = {node.src[0] for node in self.nodes if node.op == "ELSE"}
        starts = (node for node in self.nodes if self._has_effect(node))
        # Each effect must be an IF that the last node not yet paired closes: nothing stands beside.
        for block, end in zip(starts, reversed(self.nodes), strict=False):
            if block.op != "IF" or block in with_else:
                break
            if end.op != "ENDIF" or end.src[0] is not block:
                break
            yield block.src[0]

    def _has_effect(self, node: UOp) -> bool:
        # Nobody but the thread itself sees a variable that is declared in the region.
        own = node.op in ("GET", "SET") and node.src[0] in self.inside
        return node.op in _EFFECTS and not own

    def _limit(self, test: UOp, holds: bool) -> Limit | None:
        op = test.op if holds else _OPPOSITE.get(test.op)
        if op not in _MIRRORED:
            return None
        number, end = test.src
        if end in self.differing:  # `n > i`
            op, number, end = _MIRRORED[op], end, number
        if end in self.differing or end.dtype not in (int32, int64):
            return None
        found = _index_and_added(number)
        return found and Limit(*found, op, end)


def _index_and_added(number: UOp) -> tuple[UOp, int] | None:
    """Return the index along x and the constant whose sum `number` is; None for other numbers.

    No launch has so many threads that the sum wraps.
    """
    steps: list[int] = []
    while number.op in ("ADD", "SUB", "CAST"):
        first, second = (*number.src, number)[:2]
        if number.op == "CAST":
            if (first.dtype, number.dtype) != (int32, int64):
                return None
            number = first
        elif second.op == "CONST":
            steps.append(second.arg if number.op == "ADD" else -second.arg)
            number = first
        elif first.op == "CONST" and number.op == "ADD":
            steps.append(first.arg)
            number = second
        else:
            return None
    if number.op != "SPECIAL" or number.arg not in _X:
        return None
    added = 0
    for step in reversed(steps):
        added += step
        if not _LEAST_ADDED <= added <= MOST_ADDED:
            return None
    return number, added

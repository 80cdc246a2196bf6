"""Find the conditions that bound the loop over the threads of a region along x.

    for t in range(block):              for t in range(1, min(block, n - 1)) if j > 0 else ():
        if 0 < t < n - 1 and j > 0: ->      y[t] = x[t - 1] + x[t + 1]
            y[t] = x[t - 1] + x[t + 1]

Threads that would do nothing are not run, and a loop without a test is vectorised without masks.
A condition that is the same for all threads of a row decides whether the row runs. One that
compares a number that grows with a thread's index along x with a value that is the same for the row
is a start or an end of the loop. Any other stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hal_core.ir.blocks.rows import OPPOSITE, Limit, Row
from hal_core.ir.uop import UOp

_EFFECTS = frozenset(
    {"IF", "RANGE", "LOOP", "LOAD", "GET", "SET", "STORE", "ATOMIC", "CAS", "FENCE", "RETURN"}
)
_JOINS = frozenset({"AND", "OR", "NOT"})


class Bounds(NamedTuple):
    """Limits of the threads of a region that have any effect. The others need not run."""

    limits: list[Limit]
    rows: list[tuple[UOp, bool]]  # conditions that are the same for a row, and what they must be
    known: dict[UOp, bool]  # all these conditions, which need no test in the loop
    far: list[Limit]  # threads beyond all `limits` that run the region as it was written
    solving: list[UOp]  # new nodes that `limits` and `far` need, in order

    def needed(self, row: Row, more: Sequence[Limit] = ()) -> list[UOp]:
        """Return the nodes of a region that these limits, and more of them, depend on, in order."""
        nodes = [condition for condition, _ in self.rows]
        for limit in (*self.limits, *more):
            nodes += [node for node in (limit.end, limit.offset) if node]
        return row.needed([*nodes, *(source for node in self.solving for source in node.src)])


def bounds(row: Row, solves: bool = True) -> Bounds:
    """Return the bounds of a region; `solves` allows `far`, for which it is written once more."""
    found = Bounds([], [], {}, [], [])
    for test, holds in _conditions(row):
        if test not in row.differing:
            found.rows.append((test, holds))
            found.known[test] = holds
            continue
        compared = row.comparison(test)
        if compared is not None and compared[1].offset is None:
            op, number, end = compared
            op = op if holds else OPPOSITE[op]
            if op != "NE" and number.least == number.most:
                found.limits.append(Limit(number.number, None, number.least, op, end))
                found.known[test] = holds
        elif solves:
            _solve(found, row, test, holds)
    for node in row.nodes:  # and what is made of them
        values = {found.known.get(source) for source in node.src}
        if node.op in _JOINS and len(values) == 1 and None not in values:
            found.known[node] = values != {node.op == "NOT"}
    return found


def _solve(found: Bounds, row: Row, test: UOp, holds: bool) -> None:
    from hal_core.ir.blocks.solving import (
        solved,
    )  # few kernels need it, and it takes long to import

    solution = solved(row, test, holds)
    if solution is not None:
        found.limits.extend(solution.limits)
        found.far.extend(solution.far)
        found.solving.extend(solution.nodes)
        found.known[test] = holds


def _conditions(row: Row) -> Iterator[tuple[UOp, bool]]:
    """Yield what must hold for a thread to have an effect: conditions and what they must be."""
    pending = [(guard, True) for guard in _guards(row)]
    seen = set(pending)
    while pending:
        test, holds = pending.pop()
        parts: list[tuple[UOp, bool]] = []
        if test not in row.differing:
            yield test, holds
        elif test.op == "NOT":
            parts = [(test.src[0], not holds)]
        elif test.op == ("AND" if holds else "OR"):
            parts = [(part, holds) for part in test.src]
        else:
            yield test, holds
        pending += [part for part in parts if part not in seen]
        seen.update(parts)


def _guards(row: Row) -> Iterator[UOp]:
    """Yield the conditions of the IFs that enclose all effects, from the outermost inwards."""
    with_else = {node.src[0] for node in row.nodes if node.op == "ELSE"}
    # Nobody but the thread itself sees a variable that is declared in the region.
    starts = (
        node
        for node in row.nodes
        if node.op in _EFFECTS and not (node.op in ("GET", "SET") and node.src[0] in row.inside)
    )
    # Each effect must be an IF that the last node not yet paired closes: nothing stands beside it.
    for block, end in zip(starts, reversed(row.nodes), strict=False):
        if block.op != "IF" or block in with_else or end.op != "ENDIF" or end.src[0] is not block:
            break
        yield block.src[0]


def joins_blocks(uops: tuple[UOp, ...]) -> bool:
    """Tell whether blocks that are neighbours along x may run as one, with longer loops.

    A thread then knows its global index only, and nothing is kept for each block.
    """
    first = next(n for n, node in enumerate(uops) if node.op == "THREADS")
    others = (node.arg[0] for node in uops if node.op == "SPECIAL")
    return (
        all(node.op in ("PARAM", "TABLE", "CONST") for node in uops[:first])
        and uops[-1].op == "ENDTHREADS"
        and uops[-1].src[0] is uops[first]
        and not any(kind in ("thread_idx", "block_idx") for kind in others)
    )

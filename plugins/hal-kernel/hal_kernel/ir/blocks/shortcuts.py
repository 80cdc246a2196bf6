"""Write `if a and b:`, where b may run only if a holds, as two nested IFs.

    if a:                       if a:
        c = x[i] > 0                if x[i] > 0:
    else:               ->              y[i] = 1
        c = False
    if c:
        y[i] = 1

The front end writes the left side for a condition that is not cheap, or loads. On the right, `a` is
a guard of all that follows, which may become a bound of a loop over threads.
"""

from __future__ import annotations

from collections import Counter

from hal_core.dtypes import bool_
from hal_kernel.ir.uop import UOp

_MOST = 64  # IFs more, one in the other: compilers of C allow 256


def without_shortcuts(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel with such conditions as nested IFs."""
    for _ in range(_MOST):
        blocks = [n for n, node in enumerate(uops) if node.op == "IF"]
        made = next(filter(None, (_nested(uops, place) for place in blocks)), None)
        if made is None:
            break
        uops = tuple(made)
    return uops


def _nested(uops: tuple[UOp, ...], place: int) -> list[UOp] | None:
    """Return the nodes with the IF at `place` moved into the IF that computes its condition."""
    block, last, wanted = uops[place], place - 1, True
    condition = block.src[0]
    while condition.op == "NOT" and uops[last] is condition:
        condition, last, wanted = condition.src[0], last - 1, not wanted
    if condition.op != "GET" or uops[last] is not condition:
        return None
    variable, end = condition.src[0], uops[last - 1]
    if end.op != "ENDIF":
        return None
    uses = Counter([source for node in uops for source in node.src])
    if uses[variable] != 3 or any(uses[node] != 1 for node in uops[last:place]):
        return None
    start = uops.index(end.src[0])
    middle, close = (
        next(n for n in range(begin, len(uops)) if uops[n].src == (uops[begin],))
        for begin in (start, place)
    )
    sides = (uops[start + 1 : middle], uops[middle + 1 : last - 1])
    # The side that does nothing but set the variable to what skips the work.
    # `if not (a and b): break` leaves the loop ahead of b, if b loads.
    leaves = [node.op for node in uops[place + 1 : close]] == ["BREAK"]
    if leaves and not any(node.op == "LOAD" for node in uops[start:place]):
        return None
    decided = [
        [node.op for node in side] == ["CONST", "SET"]
        and side[1].src == (variable, side[0])
        and side[0].arg is (wanted if leaves else not wanted)
        for side in sides
    ]
    hidden = any(node.op == "BARRIER" for node in uops[start:close])
    if decided.count(True) != 1 or hidden or uops[close].op == "ELSE":
        return None
    kept = sides[decided.index(False)]
    if not kept or kept[-1].op != "SET" or kept[-1].src[0] is not variable:
        return None
    outer = _if(end.src[0].src[0], decided[0 if leaves else 1], end.line)
    inner = _if(kept[-1].src[1], wanted, block.line)
    closed = [UOp("ENDIF", None, (opened[-1],), None, end.line) for opened in (inner, outer)]
    if leaves:
        left = uops[place + 1]
        body = [*outer, UOp("BREAK", None, left.src, None, end.line), closed[1]]
        body += [*kept[:-1], *inner, left, closed[0]]
    else:
        body = [*outer, *kept[:-1], *inner, *uops[place + 1 : close], *closed]
    before = [node for node in uops[:start] if node is not variable]
    return [*before, *body, *uops[close + 1 :]]


def _if(condition: UOp, holds: bool, line: int) -> list[UOp]:
    """Return the nodes that open an IF on a condition, or on its opposite unless it `holds`."""
    opposite = [] if holds else [UOp("NOT", bool_, (condition,), None, line)]
    return [*opposite, UOp("IF", None, (*opposite, condition)[:1], None, line)]

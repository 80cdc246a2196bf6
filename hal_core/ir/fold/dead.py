"""Drops nodes that nothing depends on."""

from __future__ import annotations

from hal_core.ir.uop import CLOSES, OPENS, UOp

# What a launch can see, or what a checked one may refuse.
_SEEN = frozenset(
    {"STORE", "LOAD", "ATOMIC", "CAS", "BARRIER", "SHARED", "ASSERT", "RETURN", "LOOP"}
)


def without_dead(uops: list[UOp]) -> tuple[UOp, ...]:
    """The nodes that something visible depends on. A variable takes all its assignments along, a
    loop what leaves it; an IF or a RANGE lives by what is inside."""
    around, carried = _surroundings(uops)
    live: set[UOp] = set()
    waiting = [node for node in uops if node.op in _SEEN]
    while waiting:
        node = waiting.pop()
        if node in live:
            continue
        live.add(node)
        waiting += node.src
        waiting += carried.get(node, ())
        if node in around:
            waiting.append(around[node])
    return tuple(node for node in uops if node in live or (_ends(node) and node.src[0] in live))


def _ends(node: UOp) -> bool:
    return node.op in CLOSES and node.op != "ELSE"


def _surroundings(uops: list[UOp]) -> tuple[dict[UOp, UOp], dict[UOp, list[UOp]]]:
    """The block around each node, and what lives with a variable or a loop."""
    around: dict[UOp, UOp] = {}
    carried: dict[UOp, list[UOp]] = {}
    open_: list[UOp] = []
    for node in uops:
        if node.op in CLOSES:
            open_.pop()
        if open_:
            around[node] = open_[-1]
        if node.op in ("SET", "BREAK", "CONTINUE"):
            carried.setdefault(node.src[0], []).append(node)
        if node.op in OPENS:
            open_.append(node)
    return around, carried

"""Drop the nodes that nothing depends on."""

from __future__ import annotations

from hal_core.ir.uop import CLOSES, OPENS, UOp

# Nodes with a visible effect. A LOAD may fail, which is one too.
_SEEN = frozenset(
    {"STORE", "LOAD", "ATOMIC", "CAS", "FENCE", "BARRIER", "SHARED", "RETURN", "LOOP"}
)


def without_dead(uops: list[UOp]) -> tuple[UOp, ...]:
    """Return the nodes that something visible depends on.

    A live variable keeps all its SETs alive, and a live loop its BREAKs and CONTINUEs. An IF or a
    RANGE is live if a node in it is.
    """
    around: dict[UOp, UOp] = {}  # the block around each node
    companions: dict[UOp, list[UOp]] = {}  # nodes that are live if a variable or a loop is
    open_: list[UOp] = []
    for node in uops:
        if node.op in CLOSES:
            open_.pop()
        if open_:
            around[node] = open_[-1]
        if node.op in ("SET", "BREAK", "CONTINUE"):
            companions.setdefault(node.src[0], []).append(node)
        if node.op in OPENS:
            open_.append(node)
    live: set[UOp] = set()
    pending = [node for node in uops if node.op in _SEEN]
    while pending:
        node = pending.pop()
        if node in live:
            continue
        live.add(node)
        pending += node.src
        pending += companions.get(node, ())
        if node in around:
            pending.append(around[node])
    for node in uops:
        if node.op in CLOSES and node.op != "ELSE" and node.src[0] in live:
            live.add(node)
    return tuple(node for node in uops if node in live)

"""Drop the nodes that nothing depends on."""

from __future__ import annotations

from hal_kernel.ir.uop import ATOMIC_OPS, CLOSES, OPENS, UOp

# Nodes with a visible effect. A LOAD may fail, which is one too.
_SEEN = ATOMIC_OPS | {"STORE", "LOAD", "FENCE", "BARRIER", "SHARED", "RETURN", "LOOP"}

_COMPANIONS = frozenset({"SET", "BREAK", "CONTINUE", "ENDRANGE", "ENDLOOP", "ENDIF"})
_NOTED = _SEEN | _COMPANIONS | OPENS | CLOSES  # most nodes only compute a value


def without_dead(uops: list[UOp]) -> tuple[UOp, ...]:
    """Return the nodes that something visible depends on.

    A live variable keeps all its SETs alive, and a live loop its BREAKs and CONTINUEs. An IF or a
    RANGE is live if a node in it is.
    """
    around: dict[UOp, UOp] = {}  # the block around each node
    companions: dict[UOp, list[UOp]] = {}  # nodes that are live if a variable or a block is
    open_: list[UOp] = []
    pending: list[UOp] = []
    block: UOp | None = None  # the innermost
    for node in uops:
        op = node.op
        if op in CLOSES:
            open_.pop()
            block = open_[-1] if open_ else None
        if block is not None:
            around[node] = block
        if op not in _NOTED:
            continue
        if op in _SEEN:
            pending.append(node)
        elif op in _COMPANIONS:
            companions.setdefault(node.src[0], []).append(node)
        if op in OPENS:
            open_.append(node)
            block = node
    live: dict[UOp, None] = {}
    for node in pending:  # which grows meanwhile
        if node in live:
            continue
        live[node] = None
        pending += node.src
        if node in companions:
            pending += companions[node]
        if node in around and around[node] not in live:
            pending.append(around[node])
    return tuple([node for node in uops if node in live])

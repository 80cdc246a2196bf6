"""Load once for a block what all its threads load ahead of all else.

    count = sizes[0]                        (once)  count = sizes[0]
    i = hal.global_idx(0)            ->     (each)  i = hal.global_idx(0)
    if i < count: y[i] = 2 * x[i]                   if i < count: y[i] = 2 * x[i]

The element is a number that all threads share, then, as a parameter is: a bound of the loop over
threads, or of a loop in lockstep.
"""

from __future__ import annotations

from hal_core.ir.blocks.hoisting import COMMON, PURE
from hal_core.ir.uop import UOp

_AHEAD = PURE | {
    "CONST", "SPECIAL", "PARAM", "SHARED", "TABLE", "VIEW", "VAR", "GET", "SET", "LOAD",
}  # fmt: skip


def with_common_loads(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes with loads made COMMON that all threads do at the start, of one element.

    A thread that stored to such an element would race with the others.
    """
    new: dict[UOp, UOp] = {}
    ahead: list[UOp] = []
    for node in uops:
        if node.op not in _AHEAD:
            break
        if node.op != "LOAD" or node.arg is not None or len(node.src) != 2:
            continue
        memory, index = node.src
        if memory.op == "PARAM" and (index.op in ("CONST", "PARAM") or index in new):
            if index.op == "CONST":
                ahead.append(UOp("CONST", index.dtype, (), index.arg, index.line))
            source = ahead[-1] if index.op == "CONST" else new.get(index, index)
            new[node] = UOp("LOAD", node.dtype, (memory, source), COMMON, node.line)
            ahead.append(new[node])
    if not new:
        return uops
    made = [node for node in uops if node.op == "PARAM"] + ahead
    for node in uops:
        if node in new or node.op == "PARAM":
            continue
        sources = tuple([new.get(source, source) for source in node.src])
        if sources != node.src:
            new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
        made.append(new.get(node, node))
    return tuple(made)

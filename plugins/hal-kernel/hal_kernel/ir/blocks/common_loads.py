"""Load once for a block what all its threads load ahead of all else.

    count = sizes[0]                        (once)  count = sizes[0]
    i = hal.global_idx(0)            ->     (each)  i = hal.global_idx(0)
    if i < count: y[i] = 2 * x[i]                   if i < count: y[i] = 2 * x[i]

The element is a number that all threads share, then, as a parameter is: a bound of the loop over
threads, or of a loop in lockstep. Nor is an element loaded again in an IF behind its load.
"""

from __future__ import annotations

from collections import Counter

from hal_kernel.ir.blocks.choices import equal
from hal_kernel.ir.blocks.hoisting import COMMON
from hal_kernel.ir.blocks.rows import ALONG_X
from hal_kernel.ir.uop import PURE, UOp

_AHEAD = PURE | {
    "CONST", "SPECIAL", "PARAM", "SHARED", "TABLE", "VIEW", "VAR", "GET", "SET", "LOAD",
}  # fmt: skip
_QUOTIENTS = frozenset({"FLOORDIV", "TRUNCDIV", "SHR"})


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


def without_repeated_loads(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes without loads in an IF of what a row may share and is loaded ahead of it.

    if v < low[j]:                  a = low[j]
        v = low[j]           ->     if v < a:
                                        v = a

    The threads of a row load `low[j]` together, but not what only some of them load: there each
    thread would wait for the stores of the one before.
    """
    seen = Counter(node.src[0] for node in uops if node.op == "LOAD")
    if max(seen.values(), default=0) < 2 or not any(node.op == "IF" for node in uops):
        return uops
    new: dict[UOp, UOp] = {}
    made: list[UOp] = []
    levels: list[list[UOp]] = [[]]  # for the nodes around all, and each open IF: the loads in it
    along: set[UOp] = set()  # what differs between neighbours of a row, or may
    for node in uops:
        op, sources = node.op, tuple([new.get(source, source) for source in node.src])
        if op == "LOAD" and node.arg is None and len(sources) == 2 and sources[1] not in along:
            ahead = (load for level in levels[:-1] for load in level if load.src[0] is sources[0])
            same = next((load for load in ahead if equal(load.src[1], sources[1])), None)
            if same is not None:
                new[node] = same
                continue
        written = node
        if sources != node.src:
            written = new[node] = UOp(op, node.dtype, sources, node.arg, node.line)
        made.append(written)
        differs = op not in _QUOTIENTS and not along.isdisjoint(sources)
        if differs or op in ("GET", "LOAD") or node.arg in ALONG_X:
            along.add(written)
        if op in ("ELSE", "ENDIF"):
            levels.pop()
        if op in ("IF", "ELSE"):
            levels.append([])
        elif op == "LOAD" and node.arg is None and len(sources) == 2:
            levels[-1].append(written)
        elif op not in _AHEAD and op != "ENDIF":  # a store, or another iteration
            levels = [[] for _ in levels]
    return tuple(made) if new else uops

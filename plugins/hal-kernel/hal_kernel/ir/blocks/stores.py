"""Store once, behind a chain of IFs of which each path ends with a store to the same element.

    if x[i] == 32:                      if x[i] == 32:
        y[i] = 0                            v = 0
    elif x[i + 1] != 32:                elif x[i + 1] != 32:
        y[i] = 1                            v = 1
    else:                       ->      else:
        y[i] = 2                            v = 2
                                        y[i] = v

LLVM does that for two stores, and makes masked stores of more. Of integers of one or two bytes
these take twice as long. Early returns have become such chains: `returns.py`. A chain with loops in
it stays as it is: its variable would cross regions.
"""

from __future__ import annotations

from hal_core.dtypes import DTYPES
from hal_kernel.ir.uop import UOp

_FEWEST = 3  # stores
_NARROW = frozenset(
    dtype for dtype in DTYPES.values() if dtype.itemsize <= 2 and not dtype.is_float
)


def with_one_store(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel with such stores made one."""
    narrow = {
        node
        for node in uops
        if node.op == "STORE" and node.arg is None and node.src[2].dtype in _NARROW
    }
    if len(narrow) < _FEWEST:
        return uops
    outermost: dict[UOp, UOp] = {}  # store -> the outermost of such IFs around it
    then: dict[UOp, list[UOp]] = {}  # IF -> the stores that its paths up to the ELSE end with
    ends: list[UOp] = []  # the stores that all paths up to here end with
    loops, before = 0, dict[UOp, int]()  # before: IF -> the loops ahead of it
    for node in uops:
        if node in narrow:
            ends = [node]
        elif node.op == "ENDIF" and ends and then.get(node.src[0]):
            ends = then[node.src[0]] + ends
            if len({store.src[:2] for store in ends}) > 1 or before[node.src[0]] < loops:
                ends = []
            outermost.update(dict.fromkeys(ends, node.src[0]))
        else:
            if node.op == "IF":
                before[node] = loops
            elif node.op == "ELSE":
                then[node.src[0]] = ends
            loops += node.op in ("RANGE", "LOOP")
            ends = []
    stores: dict[UOp, list[UOp]] = {}
    for store, block in outermost.items():
        stores.setdefault(block, []).append(store)
    chosen = {block: found for block, found in stores.items() if len(found) >= _FEWEST}
    return _moved(uops, chosen) if chosen else uops


def _moved(uops: tuple[UOp, ...], chosen: dict[UOp, list[UOp]]) -> tuple[UOp, ...]:
    """Return the nodes with a store behind each IF of `chosen`, in place of the stores in it."""
    variables: dict[UOp, UOp] = {}  # IF, or a store in it -> what is stored behind it
    made: list[UOp] = []
    for node in uops:
        if node in chosen:
            variable = UOp("VAR", chosen[node][0].src[0].dtype, (), "stored", node.line)
            variables.update(dict.fromkeys((node, *chosen[node]), variable))
            made += (variable, node)
        elif node in variables:
            made.append(UOp("SET", None, (variables[node], node.src[2]), None, node.line))
        else:
            made.append(node)
        if node.op == "ENDIF" and node.src[0] in chosen:
            memory, index, _ = chosen[node.src[0]][0].src
            value = UOp("GET", memory.dtype, (variables[node.src[0]],), None, node.line)
            made += (value, UOp("STORE", None, (memory, index, value), None, node.line))
    return tuple(made)

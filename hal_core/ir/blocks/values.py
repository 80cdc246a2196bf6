"""Use the index or the condition that a variable was set to in its place, where it is known.

    i = base + t                    j = base + t
    if i < n:             ->        if j < n:
        y[i] = x[i]                     y[j] = x[j]
    i = 0                           i = 0

On the right, j is no variable: what it is made of is seen, so that `j < n` is a bound of threads.
"""

from __future__ import annotations

from hal_core.dtypes import bool_, int32, int64, uint32, uint64
from hal_core.ir.blocks.hoisting import PURE
from hal_core.ir.fold.dead_code import without_dead
from hal_core.ir.uop import UOp

_ARITHMETIC = PURE | {"CONST", "SPECIAL"}
_INDICES = {bool_, int32, int64, uint32, uint64}  # indices and conditions
_ENDS = {"ENDRANGE", "ENDLOOP", "ENDIF"}


def with_values(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel with such GETs replaced, and without what nothing reads then."""
    if not any(node.op == "GET" for node in uops):
        return uops
    set_in = _set_in_blocks(uops)
    made: list[UOp] = []
    new: dict[UOp, UOp] = {}
    known: dict[UOp, UOp] = {}  # variable -> its value at this place
    before: list[dict[UOp, UOp]] = []  # the same, at the start of each open block
    for node in uops:
        if node.op == "GET" and node.src[0] in known:
            new[node] = known[node.src[0]]
            continue
        if node.op in ("IF", "RANGE", "LOOP"):
            if node.op != "IF":  # an iteration sees what an earlier one set
                known = _without(known, set_in[node])
            before.append(known.copy())
        elif node.op == "ELSE":
            known = before[-1].copy()
        elif node.op in _ENDS:  # what a block computed is not visible behind it
            known = _without(before.pop(), set_in[node.src[0]])
        sources = tuple([new.get(source, source) for source in node.src])
        if sources != node.src:
            new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
        made.append(new.get(node, node))
        if node.op == "SET":
            known.pop(node.src[0], None)
            if sources[1].op in _ARITHMETIC and node.src[0].dtype in _INDICES:
                known[node.src[0]] = sources[1]
    return without_dead(made)


def _without(known: dict[UOp, UOp], variables: set[UOp]) -> dict[UOp, UOp]:
    return {variable: value for variable, value in known.items() if variable not in variables}


def _set_in_blocks(uops: tuple[UOp, ...]) -> dict[UOp, set[UOp]]:
    """Return the variables that are set in each IF, RANGE and LOOP, and in the blocks inside."""
    found: dict[UOp, set[UOp]] = {}
    open_: list[set[UOp]] = []
    for node in uops:
        if node.op in ("IF", "RANGE", "LOOP"):
            found[node] = set()
            open_.append(found[node])
        elif node.op in _ENDS:
            inner = open_.pop()
            if open_:
                open_[-1] |= inner
        elif node.op == "SET" and open_:
            open_[-1].add(node.src[0])
    return found

"""Replace reads of a variable by the index or condition that it was last set to.

    i = base + t                    i = base + t
    if i < n:             ->        if base + t < n:
        y[i] = x[i]                     y[base + t] = x[base + t]
    i = 0                           i = 0

On the right, the test shows what is compared, so that it becomes a bound of threads.
"""

from __future__ import annotations

from hal_core.dtypes import bool_, int32, int64, uint32, uint64
from hal_kernel.ir.blocks.choices import choices, is_number
from hal_kernel.ir.fold.dead_code import without_dead
from hal_kernel.ir.uop import PURE, UOp

_ARITHMETIC = PURE | {"CONST", "SPECIAL", "PARAM"}
_INDICES = {bool_, int32, int64, uint32, uint64}  # indices and conditions
_BEGINS = {"IF", "RANGE", "LOOP"}
_ENDS = {"ENDRANGE", "ENDLOOP", "ENDIF"}


def with_values(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel with such GETs replaced, without nodes that lost all readers."""
    if not any(node.op == "GET" for node in uops):
        return uops
    set_in = _set_in_blocks(uops)
    made: list[UOp] = []
    new: dict[UOp, UOp] = {}
    untouched = new.keys().isdisjoint
    known: dict[UOp, UOp] = {}  # variable -> its value at this place
    before: list[list[dict[UOp, UOp]]] = []  # the same, at the start of each open block and ELSE
    places: list[int] = []  # of the open blocks, among the nodes that were made
    numbers: set[UOp] = set()
    for node in uops:
        op = node.op
        if op == "GET" and node.src[0] in known:
            new[node] = known[node.src[0]]
            continue
        if op in _BEGINS:
            if op != "IF":  # an iteration sees what an earlier one set
                known = _without(known, set_in[node])
            before.append([known.copy()])
            places.append(len(made))
        elif op == "ELSE":
            before[-1].append(known)
            known = before[-1][0].copy()
        elif op in _ENDS:  # what a block computed is not visible behind it
            start, *then = before.pop()
            place, sides = places.pop(), (then[0], known) if then else (known, start)
            known = _without(start, set_in[node.src[0]])
            chosen = choices(made[place:], sides, numbers) if op == "ENDIF" else None
            if chosen is not None:
                made[place:] = chosen
                known.update({part.src[0]: part.src[1] for part in chosen if part.op == "SET"})
                numbers.update(chosen)
                continue
        written = node
        if not untouched(node.src):
            sources = tuple([new.get(source, source) for source in node.src])
            written = new[node] = UOp(op, node.dtype, sources, node.arg, node.line)
        made.append(written)
        if is_number(written, numbers):
            numbers.add(written)
        if op == "SET":
            variable, value = written.src
            known.pop(variable, None)
            if value.op in _ARITHMETIC and variable.dtype in _INDICES:
                known[variable] = value
    return without_dead(made) if new else uops


def _without(known: dict[UOp, UOp], variables: set[UOp]) -> dict[UOp, UOp]:
    return {variable: value for variable, value in known.items() if variable not in variables}


def _set_in_blocks(uops: tuple[UOp, ...]) -> dict[UOp, set[UOp]]:
    """Return the variables that are set in each IF, RANGE and LOOP, and in the blocks inside."""
    found: dict[UOp, set[UOp]] = {}
    open_: list[set[UOp]] = []
    for node in uops:
        op = node.op
        if op in _BEGINS:
            found[node] = set()
            open_.append(found[node])
        elif op in _ENDS:
            inner = open_.pop()
            if open_:
                open_[-1] |= inner
        elif op == "SET" and open_:
            open_[-1].add(node.src[0])
    return found

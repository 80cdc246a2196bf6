"""Write an index that grows by the same in each iteration as a product of the loop's counter.

    c = i                             c = i
    for j in range(h):        ->      for j in range(h):
        total += x[c]                     total += x[i + j * w]
        c += w                            c = i + j * w + w

The text on the right shows that neighbouring threads load neighbouring elements. Where nothing
reads `c` behind the loop, `c` is removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_core.dtypes import int32, int64, uint32
from hal_kernel.ir.blocks.hoisting import is_shared
from hal_kernel.ir.fold.dead_code import without_dead
from hal_kernel.ir.uop import CLOSES, OPENS, UOp

_INDICES = {int32, int64, uint32}


def with_products(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel with such indices as products."""
    if not any(node.op == "GET" for node in uops):
        return uops
    made = list(uops)
    for last in [node for node in uops if node.op == "ENDRANGE"]:  # the innermost loop first
        place, end = made.index(last.src[0]), made.index(last)
        for change, by in _running(made[place:end]):
            place, end = made.index(last.src[0]), made.index(last)
            made[place:end] = _written(change, by, made[:place], made[place:end])
    return uops if tuple(made) == uops else without_dead(made)


def _running(nodes: list[UOp]) -> list[tuple[UOp, UOp]]:
    """Return the SETs by which a loop changes such indices, each with the number that it adds."""
    loop, inside = nodes[0], set(nodes)
    start, _, step = loop.src
    if step.arg != 1 or any(node.op == "CONTINUE" and node.src == (loop,) for node in nodes):
        return []
    sets = [node for node in nodes if node.op == "SET"]
    # A cast of what was counted is right only where the count has not wrapped.
    casts = loop.dtype is int32 and start.op == "CONST" and start.arg >= 0
    found: dict[UOp, tuple[UOp, UOp]] = {}
    depth = 0
    for node in nodes[1:]:
        depth += (node.op in OPENS) - (node.op in CLOSES)
        if node.op == "GET":
            found.pop(node.src[0], None)  # it is read with its next value
        if node.op != "SET" or depth or sum(other.src[0] is node.src[0] for other in sets) > 1:
            continue
        variable, by = node.src[0], _growth(node, inside)
        counts = casts or variable.dtype is loop.dtype
        if by is not None and counts and variable.dtype in _INDICES:
            found[variable] = node, by
    return list(found.values())


def _growth(change: UOp, inside: set[UOp]) -> UOp | None:
    """Return what a SET adds to its variable or takes from it, if all threads share that."""
    value = change.src[1]
    if value.op not in ("ADD", "SUB"):
        return None
    old, by = value.src
    if value.op == "ADD" and is_shared(old):
        old, by = by, old
    reads = old.op == "GET" and old.src[0] is change.src[0] and old in inside
    return by if reads and is_shared(by) else None


def _written(change: UOp, by: UOp, before: list[UOp], nodes: list[UOp]) -> list[UOp]:
    """Return a loop, up to its end, in which the variable is a product where it is read."""
    loop, inside, line = nodes[0], set(nodes), change.line
    variable, value = change.src
    dtype = variable.dtype
    made: list[UOp] = []

    def add(op: str, *src: UOp) -> UOp:
        made.append(UOp(op, dtype, src, None, line))
        return made[-1]

    def copied(node: UOp) -> UOp:
        if node not in inside:
            return node
        made.append(UOp(node.op, node.dtype, tuple(map(copied, node.src)), node.arg, line))
        return made[-1]

    first = value_before(variable, before) or add("GET", variable)
    by = copied(by)
    made.append(loop)
    number, start = loop, loop.src[0]
    if start.op != "CONST" or start.arg:
        made.append(UOp("SUB", loop.dtype, (loop, start), None, line))
        number = made[-1]
    if loop.dtype is not dtype:
        number = add("CAST", number)
    now = add(value.op, first, add("MUL", number, by))
    new: dict[UOp, UOp] = {}
    for node in nodes[1:]:
        if node.op == "GET" and node.src[0] is variable:
            new[node] = now
            continue
        sources = tuple([new.get(source, source) for source in node.src])
        if sources != node.src:
            new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
        made.append(new.get(node, node))
    return made


def value_before(variable: UOp, before: Sequence[UOp]) -> UOp | None:
    """Return the value that a variable has behind these nodes, if it is set in no inner block.

    It may be set ahead of an IF that is open, not ahead of a loop, which may set it again.
    """
    depth = 0
    for node in reversed(before):
        op = node.op
        if op == "SET" and node.src[0] is variable:
            return node.src[1] if depth == 0 else None
        if op == "ELSE":
            depth += not depth
        elif op in CLOSES:
            depth += 1
        elif op in OPENS and depth:
            depth -= 1
        elif op in ("RANGE", "LOOP"):
            return None
    return None

"""How much one thread of a kernel does: enough to decide whether a launch is worth splitting."""

from __future__ import annotations

from hal_core.ir.fold.constants import Number, constant, evaluate
from hal_core.ir.uop import STRUCTURE, Kernel, UOp

_FREE = STRUCTURE | {"PARAM", "CONST", "VAR", "SPECIAL", "SHARED", "BARRIER", "ASSERT"}


def operations_per_thread(kernel: Kernel) -> int | None:
    """The nodes one thread executes, both sides of an IF counted.

    None when how often a loop turns is known only at the launch.
    """
    total, trips, outer = 0, 1, []
    known: dict[UOp, Number] = {}  # `r = 2` and `range(-r, r + 1)` are constants too
    for node in kernel.uops:
        if node.op == "LOOP":
            return None
        if node.op == "RANGE":
            count = _trip_count(node, known)
            if count is None:
                return None
            outer.append(trips)
            trips *= count
        elif node.op == "ENDRANGE":
            trips = outer.pop()
        elif node.op not in _FREE:
            total += trips
        value = _value(node, known)
        if value is not None:
            known[node] = value
    return total


def _value(node: UOp, known: dict[UOp, Number]) -> Number | None:
    if node.op == "CONST":
        return constant(node)
    if not node.src or not all(part in known for part in node.src):
        return None
    return evaluate(node, [known[part] for part in node.src])


def _trip_count(loop: UOp, known: dict[UOp, Number]) -> int | None:
    start, stop, step = (known.get(node) for node in loop.src)
    if start is None or stop is None or not step:
        return None
    return max(0, -((int(start) - int(stop)) // int(step)))  # len(range(...)) can overflow

"""Count the operations of one thread, to decide whether a launch is worth splitting."""

from __future__ import annotations

from collections.abc import Iterable

from hal_kernel.ir.fold.constants import Number, constant, evaluate
from hal_kernel.ir.uop import STRUCTURE, UOp

_FREE = STRUCTURE | {
    "PARAM", "CONST", "VAR", "SPECIAL", "SHARED", "LOCAL", "TABLE", "VIEW", "BARRIER", "ASSERT",
    "PRINT",
}  # fmt: skip


def operations_per_thread(uops: Iterable[UOp]) -> int | None:
    """Return how many of the nodes one thread executes, with both sides of an IF counted.

    None when the number of iterations of a loop is known only at the launch.
    """
    total, trips, outer = 0, 1, []
    known: dict[UOp, Number] = {}  # `r = 2` and `range(-r, r + 1)` are constants too
    for node in uops:
        if node.op == "LOOP":
            return None
        if node.op == "RANGE":
            start, stop, step = (known.get(part) for part in node.src)
            if start is None or stop is None or not step:
                return None
            outer.append(trips)
            trips *= max(0, -((int(start) - int(stop)) // int(step)))  # len(range()) can overflow
        elif node.op == "ENDRANGE":
            trips = outer.pop()
        elif node.op not in _FREE:
            total += trips
        value = None
        if node.op == "CONST":
            value = constant(node)
        elif node.src and all(part in known for part in node.src):
            value = evaluate(node, [known[part] for part in node.src])
        if value is not None:
            known[node] = value
    return total

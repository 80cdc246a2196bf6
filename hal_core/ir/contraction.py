"""Fuse products and sums of floats, where a kernel allows it.

    y = a * x + b   ->   y = fma(a, x, b)
    y = b - a * x   ->   y = fma(-a, x, b)

A compiler fuses what it sees beside each other, so the same kernel in another form would round
otherwise. Fused here, ahead of all that moves nodes, every form of a kernel gives the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from hal_core.ir.uop import Kernel, UOp


def contracted(kernel: Kernel, apart: Collection[UOp] = ()) -> Kernel:
    """Return the kernel with each product fused into the only sum that takes it.

    The sums `apart` stay. The result allows no compiler to fuse more.
    """
    uses = Counter(source for node in kernel.uops for source in node.src)
    places = {node: _product(node, uses) for node in kernel.uops if node not in apart}
    fused = {node: node.src[place] for node, place in places.items() if place is not None}
    gone = set(fused.values())
    uops: list[UOp] = []
    made: dict[UOp, UOp] = {}
    for node in kernel.uops:
        source = tuple([made.get(part, part) for part in node.src])
        if node in fused:
            product = fused[node]
            a, b = (made.get(part, part) for part in product.src)
            added = source[node.src[0] is product]
            if node.op == "SUB":  # p - c is p + -c, and c - p is -p + c
                negated = UOp("NEG", node.dtype, (added if node.src[0] is product else a,), None)
                uops.append(negated)
                a, added = (a, negated) if node.src[0] is product else (negated, added)
            made[node] = UOp("FMA", node.dtype, (a, b, added), None, node.line)
            uops.append(made[node])
        elif node in gone:
            continue
        elif source != node.src:
            made[node] = UOp(node.op, node.dtype, source, node.arg, node.line)
            uops.append(made[node])
        else:
            uops.append(node)
    return kernel._replace(uops=tuple(uops), contract=False)


def _product(node: UOp, uses: Counter[UOp]) -> int | None:
    """Return the place of the product that a sum is fused with.

    Of two products it is the one of a variable: in a loop the next sum waits for it.
    """
    if node.op not in ("ADD", "SUB") or node.dtype is None or not node.dtype.is_float:
        return None
    found = [n for n, part in enumerate(node.src) if part.op == "MUL" and uses[part] == 1]
    of_variables = [n for n in found if any(part.op == "GET" for part in node.src[n].src)]
    best = of_variables or found
    return best[-1] if best else None

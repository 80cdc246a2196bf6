"""Fuse products and sums of floats, where a kernel allows it.

    y = a * x + b   ->   y = fma(a, x, b)
    y = b - a * x   ->   y = fma(-a, x, b)

A compiler fuses what it sees beside each other, so the same kernel in another form would round
otherwise. Fused here, ahead of all that moves nodes, every form of a kernel gives the same bits.
"""

from __future__ import annotations

from collections import Counter

from hal_kernel.ir.uop import Kernel, UOp, replaced


def contracted(kernel: Kernel) -> Kernel:
    """Return the kernel with each product fused into the only sum that takes it.

    The result allows no compiler to fuse more.
    """
    uses = Counter([source for node in kernel.uops for source in node.src])
    sums = {node: _product(node, uses) for node in kernel.uops if node.op in ("ADD", "SUB")}
    fused = {node: product for node, product in sums.items() if product is not None}
    gone = set(fused.values())
    uops: list[UOp] = []
    made: dict[UOp, UOp] = {}
    for node in kernel.uops:
        renewed = replaced(node, made)
        if node in fused:
            product = fused[node]
            is_first = node.src[0] is product
            a, b = (made.get(part, part) for part in product.src)
            added = renewed.src[1] if is_first else renewed.src[0]
            if node.op == "SUB":  # a * b - c is a * b + -c, and c - a * b is -a * b + c
                negated = UOp("NEG", node.dtype, (added if is_first else a,), None, node.line)
                uops.append(negated)
                a, added = (a, negated) if is_first else (negated, added)
            made[node] = UOp("FMA", node.dtype, (a, b, added), None, node.line)
            uops.append(made[node])
        elif node not in gone:
            made[node] = renewed
            uops.append(renewed)
    return kernel._replace(uops=tuple(uops), contract=False)


def _product(node: UOp, uses: Counter[UOp]) -> UOp | None:
    """Return the product that a sum is fused with, if it takes one that nothing else takes.

    Of two products it is the one of a variable: in a loop the next sum waits for it.
    """
    if node.dtype is None or not node.dtype.is_float:
        return None
    found = [part for part in node.src if part.op == "MUL" and uses[part] == 1]
    of_variables = [part for part in found if any(one.op == "GET" for one in part.src)]
    best = of_variables or found
    return best[-1] if best else None

"""Give the plain form of a kernel: a loop over the threads, around what the kernel says.

    if i < n:                         for i in threads:
        for k in range(w):                if i < n:
            s += x[w * i + k]                 for k in range(w): s += x[w * i + k]
        y[i] = s                              y[i] = s

`fission.py` moves loops out of the one over the threads, cuts rows, and writes short loops out; and
renderers tell compilers that threads do not depend on each other. Most kernels gain by that, and
some lose, by what their data and sizes are. So a device may measure both forms in the first
launches of a kernel, and keep the faster one.

Both must give the same bits: a kernel has no plain form if its threads see each other's atomics in
another order then. The renderer fuses products and writes formulas alike in both.
"""

from __future__ import annotations

from hal_kernel.ir.blocks.fission import in_one_region
from hal_kernel.ir.blocks.quotients import INDICES
from hal_kernel.ir.blocks.rows import ALONG_X, MOST_NODES_IN_PARTS
from hal_kernel.ir.uop import ATOMIC_OPS, Kernel, UOp

_ORDERED = ATOMIC_OPS | {"BARRIER", "FENCE", "SHUFFLE", "BALLOT"}
_SUMS = frozenset({"ADD", "SUB"})
_COSTS, _COSTLY = {"FMA": 1, "DIV": 8, "SQRT": 8}, 8  # a formula is eight FMAs, or more
_SHARED = frozenset({"PARAM", "CONST", "TABLE", "SHARED", "VIEW"})


def plain(kernel: Kernel) -> Kernel | None:
    """Return the kernel as one region, with nothing moved; None if it has no plain form."""
    ops = {node.op for node in kernel.uops}
    if ops & _ORDERED or len(kernel.uops) > MOST_NODES_IN_PARTS:
        return None
    return kernel._replace(uops=in_one_region(kernel.uops, claims=False))


def has_costly_branch(kernel: Kernel) -> bool:
    """Tell whether a test of data decides over a quotient, a root or the formula of a function.

    In vectors all threads compute it, though few may need it.
    """
    by_data, left, cost = set[UOp](), False, 0  # left: some threads have returned
    opened: list[bool] = []
    for node in kernel.uops:
        if node.op in ("LOAD", "GET") or not by_data.isdisjoint(node.src):
            by_data.add(node)
        if node.op == "IF":
            opened.append(node.src[0] in by_data)
        elif node.op == "ENDIF":
            opened.pop()
        elif node.op == "RETURN":
            left = left or True in opened
        elif (left or True in opened) and node.dtype is not None and node.dtype.is_float:
            cost += _COSTS.get(node.op, 0)
    return cost >= _COSTLY


def gathers(kernel: Kernel) -> bool:
    """Tell whether a thread accesses an element that is not the next one to its neighbour's.

    Compilers load such elements one by one into vectors, or sort long ones, which takes longer than
    single threads where their loops are short.
    """
    same, following = set[UOp](), set[UOp]()  # what all threads share, and what grows by one
    for node in kernel.uops:
        op, src = node.op, node.src
        accesses = op in ("LOAD", "STORE") and src[0].op != "LOCAL"
        if accesses and src[1] not in same and src[1] not in following:
            return True
        if op in _SHARED or (op == "SPECIAL" and node.arg not in ALONG_X):
            same.add(node)
        elif node.arg in ALONG_X:
            following.add(node)
        elif op not in ("VAR", "GET") and same.issuperset(src):
            same.add(node)
        elif op in ("CAST", *_SUMS) and node.dtype in INDICES:
            first, *others = src if op != "ADD" or src[0] in following else src[::-1]
            if first in following and same.issuperset(others):
                following.add(node)
    return False

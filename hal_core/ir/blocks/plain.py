"""Give the plain form of a kernel: a loop over the threads, around what the kernel says.

    if i < n:                         for i in threads:
        for k in range(w):                if i < n:
            s += x[w * i + k]                 for k in range(w): s += x[w * i + k]
        y[i] = s                              y[i] = s

`fission.py` moves loops out of the one over the threads, cuts rows, and writes short loops out; and
renderers tell compilers that threads do not depend on each other. Most kernels gain by that, and
some lose, by what their data and sizes are. So a device may measure both forms in the first
launches of a kernel, and keep the faster one.

Both must give the same bits: a kernel has no plain form if its forms might round differently, or
see each other's atomics in another order.
"""

from __future__ import annotations

from hal_core.ir.blocks.fission import in_one_region
from hal_core.ir.blocks.quotients import INDICES
from hal_core.ir.blocks.rows import ALONG_X, MOST_NODES_IN_PARTS
from hal_core.ir.expand import FUNCTIONS
from hal_core.ir.uop import Kernel, UOp

_ORDERED = frozenset({"ATOMIC", "CAS", "BARRIER", "FENCE", "SHUFFLE", "BALLOT"})
_SUMS = frozenset({"ADD", "SUB"})
_SHARED = frozenset({"PARAM", "CONST", "TABLE", "SHARED", "VIEW"})


def plain(kernel: Kernel) -> Kernel | None:
    """Return the kernel as one region, with nothing moved; None if it has no plain form."""
    ops = {node.op for node in kernel.uops}
    if ops & _ORDERED or len(kernel.uops) > MOST_NODES_IN_PARTS:
        return None
    # A compiler fuses a product and a sum where it sees both, and a math function is a formula, or
    # within loops a call of the C library.
    floats = {node.op for node in kernel.uops if node.dtype is not None and node.dtype.is_float}
    if not floats.isdisjoint(FUNCTIONS):
        return None
    if kernel.contract and "MUL" in floats and not floats.isdisjoint(_SUMS):
        return None
    return kernel._replace(uops=in_one_region(kernel.uops, claims=False))


def gathers(kernel: Kernel) -> bool:
    """Tell whether a thread accesses an element that is not the next one to its neighbour's.

    Compilers take vectors apart for such elements, or sort long ones.
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

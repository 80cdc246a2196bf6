"""Find the accesses of neighbouring elements that can be one access.

    LOAD p i (0, 4)
    LOAD p i (1, 4)        one access of the 4 elements from p[i] on
    LOAD p i (2, 4)
    LOAD p i (3, 4)

Each node has its own meaning, `p[i + k]`, so whatever stands alone is an access of one element.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_kernel.ir.uop import UOp

NBYTES = 16  # of one access, at most: what GPUs have


def follows(before: UOp, node: UOp) -> bool:
    """Tell whether a node accesses the element behind that of the node before it in the list."""
    if node.op not in ("LOAD", "STORE") or before.op != node.op or not isinstance(node.arg, tuple):
        return False
    lane, count = node.arg
    return before.arg == (lane - 1, count) and before.src[:2] == node.src[:2]


def vectors(uops: Sequence[UOp]) -> dict[UOp, Sequence[UOp]]:
    """Return the whole vectors of a list: all their nodes, by the first."""
    found: dict[UOp, Sequence[UOp]] = {}
    run: list[UOp] = []
    for node in uops:
        run = [*run, node] if run and follows(run[-1], node) else [node]
        if node.op in ("LOAD", "STORE") and node.arg == (len(run) - 1, len(run)):
            found[run[0]] = run
    return found

"""Find facts of a list of nodes that are needed before it is written as text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hal_kernel.ir import UOp
from hal_kernel.ir.uop import LEAVES, OPENS, dtype_of


def stays_in_range(uop: UOp) -> bool:
    """Tell whether a RANGE's counter is still in its dtype one step after its last iteration."""
    start, stop, step = uop.src
    if abs(step.arg) == 1:
        return True
    if start.op != "CONST" or stop.op != "CONST":
        return False
    counters, dtype = range(start.arg, stop.arg, step.arg), dtype_of(uop)
    return not counters or dtype.min <= counters[-1] + step.arg <= dtype.max


def ends_in(uops: Sequence[UOp]) -> dict[UOp, UOp]:
    """Map each IF whose ENDIF is the last node in another IF's block to that other IF."""
    pairs = itertools.pairwise(uops)
    return {a.src[0]: b.src[0] for a, b in pairs if a.op == b.op == "ENDIF"}


def used_once(uops: Sequence[UOp]) -> dict[UOp, bool]:
    """Map each used value to whether it is used only once, in the block that computes it."""
    uses: dict[UOp, int] = {}
    home: dict[UOp, int] = {}
    blocks, count = [0], 0
    for uop in uops:
        closes = uop.op == "ELSE" or uop.op.startswith("END")
        if closes:
            blocks.pop()
        elif uop.op not in LEAVES:
            for source in uop.src:
                repeats = uop.op in ("MIN", "MAX", "ISNAN") or (
                    uop.op == "ABS" and dtype_of(uop).is_integer
                )  # their text has an operand twice
                many = uop.op == "RANGE" or home[source] != blocks[-1] or repeats
                uses[source] = uses.get(source, 0) + (2 if many else 1)
        home[uop] = blocks[-1]
        if uop.op in OPENS or uop.op == "THREADS":
            count += 1
            blocks.append(count)
    return {uop: number == 1 for uop, number in uses.items()}


def low_bits(uops: Sequence[UOp]) -> set[UOp]:
    """Return the low bits (`k & 7`, `k % 8`, `uint8(k)`) in the indices of a kernel with loops.

    In some loops clang 22 takes them for neighbours in any vector of them.
    """
    if not any(node.op in ("RANGE", "LOOP") for node in uops):
        return set()
    sets: dict[UOp, list[UOp]] = {}
    pending = list[UOp]()
    for node in uops:
        if node.op == "SET":
            sets.setdefault(node.src[0], []).append(node.src[1])
        elif node.op in ("LOAD", "STORE"):
            pending += node.src[:2]
    found: set[UOp] = set()
    while pending:
        node = pending.pop()
        if node not in found and node.op != "LOAD":
            found.add(node)
            pending += (*node.src, *sets.get(node, ()))
    return {node for node in found if _is_low_bits(node)}


def _is_low_bits(node: UOp) -> bool:
    source, dtype = node.src[0] if node.src else node, node.dtype
    if dtype is None or not dtype.is_integer:
        return False
    if node.op == "CAST" and source.dtype is not None:
        return source.dtype.is_integer and dtype.itemsize < source.dtype.itemsize
    if node.op not in ("AND", "MOD", "TRUNCMOD") or node.src[1].op != "CONST":
        return False
    size = node.src[1].arg + (node.op == "AND")
    return bool(size > 0 and size & (size - 1) == 0)


def short_loops(uops: Sequence[UOp]) -> set[UOp]:
    """Return the loops of up to 16 iterations, by constants, that hold no other loop.

    Nor do they hold the loop over the threads, behind barriers.
    """
    found: set[UOp] = set()
    last: UOp | None = None
    for node in uops:
        if node.op in ("RANGE", "LOOP", "THREADS"):
            last = node
        elif node.op == "ENDRANGE" and node.src[0] is last:
            ends = [source.arg for source in last.src if source.op == "CONST"]
            if len(ends) == 3 and not range(*ends)[16:]:
                found.add(last)
    return found

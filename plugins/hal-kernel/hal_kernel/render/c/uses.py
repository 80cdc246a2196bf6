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
                many = uop.op in ("RANGE", "THREADS") or home[source] != blocks[-1] or repeats
                uses[source] = uses.get(source, 0) + (2 if many else 1)
        home[uop] = blocks[-1]
        if uop.op in OPENS or uop.op in ("ROWS", "THREADS"):
            count += 1
            blocks.append(count)
    return {uop: number == 1 for uop, number in uses.items()}

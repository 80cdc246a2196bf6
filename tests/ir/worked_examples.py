"""The form of the examples that modules of `hal_kernel.ir` begin with: nodes before and after."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from hal_kernel.ir import UOp


def side_by_side(before: Sequence[UOp], after: Sequence[UOp]) -> str:
    rows = list(zip_longest(_lines(before), _lines(after), fillvalue=""))
    width = max(len(left) for left, _ in rows)
    return "\n".join(f"    {left:{width}} | {right}".rstrip() for left, right in rows)


def _lines(uops: Sequence[UOp]) -> list[str]:
    places = {node: place for place, node in enumerate(uops)}
    made, depth = [], 0
    for place, node in enumerate(uops):
        depth -= node.op.startswith("END") or node.op == "ELSE"
        words = [node.op, *(f"%{places[source]}" for source in node.src)]
        words += [] if node.arg is None else [str(node.arg)]
        made.append(f"{place:2} {'  ' * depth}{' '.join(words)}")
        depth += node.op in ("IF", "ELSE", "RANGE", "LOOP", "THREADS")
    return made

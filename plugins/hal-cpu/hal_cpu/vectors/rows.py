"""Find which threads of a row have work: those for which the guards around it may hold.

    if 0 < i < n - 1:               i + first > 0, i + first < n - 1
        y[i] = x[i - 1] + x[i + 1]

The ends are solved once a row, so that no gang lies across them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from hal_core.dtypes import int32
from hal_cpu.vectors.arithmetic import OPPOSITE
from hal_cpu.vectors.shapes import Shapes
from hal_cpu.vectors.tree import If, Item
from hal_kernel.ir.uop import PURE, UOp

_TURNED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ"}
_AHEAD = PURE | {"CONST", "SPECIAL", "VAR"}
_MOST_NODES = 64  # that are computed once a row


class Limit(NamedTuple):
    """A comparison that holds for each thread with work; `linear` grows by one along x."""

    op: str  # LT, LE, GT, GE, EQ
    linear: UOp
    end: UOp


def limits(body: Sequence[Item], shapes: Shapes) -> list[Limit]:
    """Return what holds for all threads of a region that have an effect."""
    found: list[Limit] = []
    while True:
        place = next((n for n, item in enumerate(body) if not _is_ahead(item)), len(body))
        item = body[place] if place < len(body) else None
        if not isinstance(item, If) or place != len(body) - 1:
            break
        works = [side for side in (0, 1) if not is_idle(item.sides[side])]
        if len(works) != 1:
            break
        found += _terms(item.node.src[0], works[0] == 0, shapes)
        body = item.sides[works[0]]
    return found


def needed(limit: Limit, outside: Collection[UOp]) -> list[UOp] | None:
    """Return the nodes that compute what a limit compares, in order; None if no row knows them."""
    order: dict[UOp, None] = {}

    def visit(node: UOp) -> bool:
        if node in order or node in outside:
            return True
        if node.op not in _AHEAD or len(order) > _MOST_NODES or not all(map(visit, node.src)):
            return False
        order[node] = None
        return True

    return list(order) if visit(limit.linear) and visit(limit.end) else None


def _is_ahead(item: Item) -> bool:
    return isinstance(item, UOp) and item.op in _AHEAD


def is_idle(side: Sequence[Item]) -> bool:
    """Tell whether a side does nothing."""
    return not side or (len(side) == 1 and isinstance(side[0], UOp) and side[0].op == "RETURN")


def _terms(condition: UOp, truth: bool, shapes: Shapes) -> list[Limit]:
    """Return comparisons that hold where a condition has a truth."""
    op = condition.op
    if op == "NOT":
        return _terms(condition.src[0], not truth, shapes)
    if op == ("AND" if truth else "OR"):
        return [term for part in condition.src for term in _terms(part, truth, shapes)]
    if not truth:
        op = OPPOSITE.get(op, "")
    if op not in _TURNED or condition.src[0].dtype is not int32:
        return []
    a, b = condition.src
    strides = shapes.stride(a), shapes.stride(b)
    if strides == (1, 0):
        return [Limit(op, a, b)]
    return [Limit(_TURNED[op], b, a)] if strides == (0, 1) else []

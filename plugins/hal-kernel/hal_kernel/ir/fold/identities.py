"""Simplify operations that one operand decides: `x * 1`, `x & 0`, `x if True else y`.

Floats are left alone, but for extremes of extremes: `x + 0` turns -0 into 0, and `x * 1` may flush
a subnormal x to zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hal_core.dtypes import DType
from hal_kernel.ir.fold.constants import Number, constant
from hal_kernel.ir.uop import UOp

Result = Number | UOp | None
# The results of operations on two equal operands.
_OF_EQUALS = {
    "EQ": True, "LE": True, "GE": True, "NE": False, "LT": False, "GT": False, "SUB": 0, "XOR": 0,
}  # fmt: skip
_COMMUTES = {"ADD", "MUL", "AND", "OR", "XOR"}
_EXTREMES = {"GT": ("MAX", "MIN"), "LT": ("MIN", "MAX")}  # of the operands in order, and swapped
_STRICT = {"GT": "GT", "LT": "LT", "GE": "GT", "LE": "LT"}


def simpler(node: UOp, sources: list[UOp], values: list[Number | None]) -> Result:
    """Return a constant or one of `sources` that the node always equals; None if there is none.

    `values` holds the numbers of the sources that are constants, None for the others.
    """
    if node.op == "WHERE":
        first, second = sources[1:]
        if values[0] is not None:
            return first if values[0] else second
        return first if first is second else None
    if node.op == "CAST" and node.dtype is sources[0].dtype:
        return sources[0]
    dtype = sources[0].dtype
    if dtype is None or dtype.is_float:
        return None
    if len(sources) == 1:
        undone = node.op in ("NOT", "NEG") and sources[0].op == node.op
        return sources[0].src[0] if undone else None
    if len(sources) == 2 and sources[0] is sources[1]:
        if node.op in ("MIN", "MAX", "AND", "OR"):
            return sources[0]
        found = _OF_EQUALS.get(node.op)
        return bool(found) if dtype.kind == "b" and found is not None else found
    rule = _RULES.get(node.op)
    if rule is None:
        return None
    first, second = sources
    if values[1] is not None:
        return rule(first, values[1], dtype)
    if values[0] is not None and node.op in _COMMUTES:
        return rule(second, values[0], dtype)
    return None


class _Extreme(NamedTuple):
    """The second of two numbers where it is greater, or less, than the first; else the first."""

    op: str  # MAX or MIN
    first: UOp
    second: UOp
    is_strict: bool = True  # False: the second also where they are equal


def merged_extremes(node: UOp, sources: Sequence[UOp]) -> UOp | None:
    """Return max(c, x) for max(c, max(x, c)), of floats and a constant; the same for min.

    They are equal for every x. LLVM takes max(x, c) for both, which is NaN for a NaN, where
    max(c, x) is c, and may be the other zero.
    """
    outer = _extreme(node.op, sources)
    value = constant(outer.first) if outer and outer.first.op == "CONST" else None
    if outer is None or value is None or not (outer.is_strict or value):
        return None
    inner = _extreme(outer.second.op, outer.second.src)
    if inner is None or inner.op != outer.op or not _is_same(inner.second, outer.first):
        return None
    return UOp(outer.op, node.dtype, (outer.first, inner.first), None, node.line)


def _extreme(op: str, sources: Sequence[UOp]) -> _Extreme | None:
    """Return an operation as an extreme of floats, however it is spelled; None if it is none."""
    if op in ("MAX", "MIN") and sources[0].dtype and sources[0].dtype.is_float:
        return _Extreme(op, sources[0], sources[1])
    strict = _STRICT.get(sources[0].op) if op == "WHERE" else None
    if strict is None:
        return None
    (a, b), (x, y) = sources[0].src, sources[1:]
    is_strict, (in_order, swapped) = strict == sources[0].op, _EXTREMES[strict]
    if not (a.dtype and a.dtype.is_float):
        return None
    if _is_same(a, x) and _is_same(b, y):
        return _Extreme(in_order, b, a, is_strict)
    return _Extreme(swapped, a, b, is_strict) if _is_same(a, y) and _is_same(b, x) else None


def _is_same(a: UOp, b: UOp) -> bool:
    """Tell whether two nodes are one, or constants of the same bits."""
    if a is b or not (a.op == b.op == "CONST"):
        return a is b
    x, y = constant(a), constant(b)
    return x is not None and x == y and math.copysign(1, x) == math.copysign(1, y)


def _all_ones(dtype: DType) -> int:
    return -1 if dtype.kind == "i" else int(dtype.max)


# op -> the result of the op with the constant `value` as its right operand.
_RULES: dict[str, Callable[[UOp, Number, DType], Result]] = {
    **dict.fromkeys(("ADD", "SUB", "XOR"), lambda x, value, dtype: None if value else x),
    # In the kernel language a division by zero gives zero.
    **dict.fromkeys(
        ("MUL", "FLOORDIV", "TRUNCDIV"),
        lambda x, value, dtype: x if value == 1 else 0 if value == 0 else None,
    ),
    **dict.fromkeys(
        ("MOD", "TRUNCMOD"), lambda x, value, dtype: 0 if value in (0, 1, -1) else None
    ),
    **dict.fromkeys(
        ("SHL", "SHR"),
        lambda x, amount, dtype: x if int(amount) % (8 * dtype.itemsize) == 0 else None,
    ),
    "AND": lambda x, value, dtype: value if not value else x if value == _all_ones(dtype) else None,
    "OR": lambda x, value, dtype: x if not value else value if value == _all_ones(dtype) else None,
}

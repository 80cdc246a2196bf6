"""Operations that one operand decides: `x * 1`, `x & 0`, `c ? x : y` with a known c.

Integers and bools: with floats `x + 0` is another zero for -0, and `x * 1` may flush x.
"""

from __future__ import annotations

from collections.abc import Callable

from hal_core.dtypes import DType
from hal_core.ir.fold.constants import Number
from hal_core.ir.uop import UOp

Result = Number | UOp | None
_SAME = {
    "EQ": True, "LE": True, "GE": True, "NE": False, "LT": False, "GT": False, "SUB": 0, "XOR": 0,
}  # fmt: skip
_TURNED = {"ADD", "MUL", "AND", "OR", "XOR"}  # the operands may change places


def simpler(node: UOp, sources: list[UOp], values: list[Number | None]) -> Result:
    """A constant or one of `sources` that the node always equals; None where there is none.

    `values` are those of the sources that are constants.
    """
    if node.op == "WHERE":
        return _where(sources, values)
    if node.op == "CAST" and node.dtype is sources[0].dtype:
        return sources[0]
    dtype = sources[0].dtype
    if dtype is None or dtype.is_float:
        return None
    if len(sources) == 1:
        undone = node.op in ("NOT", "NEG") and sources[0].op == node.op
        return sources[0].src[0] if undone else None
    if len(sources) == 2 and sources[0] is sources[1]:
        return _of_twins(node.op, sources[0], dtype)
    rule = _RULES.get(node.op)
    if rule is None:
        return None
    first, second = sources
    if values[1] is not None:
        return rule(first, values[1], dtype)
    if values[0] is not None and node.op in _TURNED:
        return rule(second, values[0], dtype)
    return None


def _where(sources: list[UOp], values: list[Number | None]) -> Result:
    first, second = sources[1:]
    if values[0] is not None:
        return first if values[0] else second
    return first if first is second else None


def _of_twins(op: str, operand: UOp, dtype: DType) -> Result:
    if op in ("MIN", "MAX", "AND", "OR"):
        return operand
    found = _SAME.get(op)
    return bool(found) if dtype.kind == "b" and found is not None else found


def _all_ones(dtype: DType) -> int:
    return -1 if dtype.kind == "i" else int(dtype.max)


def _and(x: UOp, value: Number, dtype: DType) -> Result:
    if not value:
        return value
    return x if value == _all_ones(dtype) else None


def _or(x: UOp, value: Number, dtype: DType) -> Result:
    if not value:
        return x
    return value if value == _all_ones(dtype) else None


def _mul(x: UOp, value: Number, dtype: DType) -> Result:
    return x if value == 1 else 0 if value == 0 else None


def _zero_is_nothing(x: UOp, value: Number, dtype: DType) -> Result:
    return None if value else x


def _shift(x: UOp, amount: Number, dtype: DType) -> Result:
    return x if int(amount) % (8 * dtype.itemsize) == 0 else None


def _mod(x: UOp, value: Number, dtype: DType) -> Result:
    return 0 if value in (0, 1, -1) else None


# The operation with a constant on its right.
_RULES: dict[str, Callable[[UOp, Number, DType], Result]] = {
    "ADD": _zero_is_nothing,
    "SUB": _zero_is_nothing,
    "XOR": _zero_is_nothing,
    "MUL": _mul,
    "FLOORDIV": _mul,  # by zero gives zero
    "MOD": _mod,
    "SHL": _shift,
    "SHR": _shift,
    "AND": _and,
    "OR": _or,
}

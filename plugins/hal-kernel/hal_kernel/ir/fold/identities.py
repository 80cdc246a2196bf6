"""Simplify operations that one operand decides: `x * 1`, `x & 0`, `x if True else y`.

Floats are left alone: `x + 0` turns -0 into 0, and `x * 1` may flush a subnormal x to zero.
"""

from __future__ import annotations

from collections.abc import Callable

from hal_core.dtypes import DType
from hal_kernel.ir.fold.constants import Number
from hal_kernel.ir.uop import UOp

Result = Number | UOp | None
# The results of operations on two equal operands.
_OF_EQUALS = {
    "EQ": True, "LE": True, "GE": True, "NE": False, "LT": False, "GT": False, "SUB": 0, "XOR": 0,
}  # fmt: skip
_COMMUTES = {"ADD", "MUL", "AND", "OR", "XOR"}


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

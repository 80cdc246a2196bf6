"""Fit Python numbers of a kernel into dtypes, and compute operators of two such numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from hal_core.dtypes import (
    DTYPES,
    STORAGE_DTYPES,
    DType,
    as_dtype,
    bool_,
    float32,
    int32,
    int64,
    pack,
)
from hal_core.errors import InvalidArgument

Number = int | float  # bool included

_MANTISSA_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_LONGEST_INT = 256  # bits; more is a mistake that would fill memory
_TOO_LONG = f"the number would have more than {_LONGEST_INT} bits"

# What to do without a dtype that numpy, CuPy and Numba have.
COMPLEX = (
    "Kernels of Python have no complex numbers and vectors: view the buffer as floats, "
    "z.view('f4') of numpy, and take the parts z[2 * i] and z[2 * i + 1]. "
    "Kernels that are text have them."
)

FOLDS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
    "<<": operator.lshift, ">>": operator.rshift,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne, "is": operator.is_, "is not": operator.is_not,
}  # fmt: skip


def as_number(value: object, operation: str) -> DType:
    """Do as `as_dtype`, and refuse elements of several numbers. Raises: InvalidArgument."""
    found = as_dtype(value, operation)
    if found.name not in DTYPES:
        raise InvalidArgument(operation, "not a number's dtype", got=value, fix=COMPLEX)
    return found


def default_dtype(value: Number) -> DType:
    """Return the dtype of a number without a typed operand: int32 or int64, float32, bool."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, float):
        return float32
    return int32 if int32.min <= value <= int32.max else int64


def plain(value: Any) -> Any:
    """Return the Python number of an enum member or a numpy scalar; any other value as it is."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):  # a member of an IntEnum
        return int(value)
    if isinstance(value, float):  # numpy.float64 is one
        return float(value)
    # Found by its name, because kernels work without numpy.
    kind = type(value)
    if kind.__module__ != "numpy" or all(base.__name__ != "generic" for base in kind.__mro__):
        return value
    return value.item() if value.dtype.kind in "biuf" else value  # a date's item may be an int


def computed(dtype: DType) -> DType:
    """Return the dtype that kernels compute with where memory holds `dtype`."""
    return float32 if dtype in STORAGE_DTYPES else dtype


def fit(value: Number, dtype: DType) -> Number | None:
    """Return `value` as a constant of `dtype`, None when the dtype does not hold it.

    Integers are held exactly or not at all, floats are rounded.
    """
    if not dtype.is_float:
        if isinstance(value, float) or not dtype.min <= value <= dtype.max:
            return None
        return bool(value) if dtype is bool_ else int(value)
    if not isinstance(value, float):
        # An int must be exact as a float: its bits from the first 1 to the last fit the mantissa.
        low_zeros = (value & -value).bit_length() - 1 if value else 0
        if abs(value).bit_length() - low_zeros > _MANTISSA_BITS[dtype.name]:
            return None
    try:
        value = float(value)
        pack(value, dtype)
    except OverflowError:
        return None
    return value


def instead(value: Number, dtype: DType) -> str:
    """Return the fix of an error: what to write instead of a number that `dtype` does not hold."""
    if dtype.is_float:
        return "Write a float." if abs(value) < dtype.max else "Use a wider dtype."
    if value < 0 and dtype.kind == "u":
        return f"Write -hal.{dtype}({-value}), which wraps around, or use a signed dtype."
    other = DTYPES.get(f"u{dtype.name}")
    if other is not None and fit(value, other) is not None:
        return f"{other} holds it: cast with hal.{other.__name__}(...), or use a wider dtype."
    return "Use a wider dtype."


def convert(value: Number, dtype: DType) -> Number | None:
    """Return a number after a cast, `hal.int32(2.7)`; None when the dtype does not hold it.

    Floats are truncated towards zero.
    """
    if dtype is bool_:
        return bool(value)
    if dtype.is_float:
        try:
            return fit(float(value), dtype)
        except OverflowError:
            return None
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return None
    return fit(int(value), dtype)


def fold(symbol: str, left: Any, right: Any) -> Any:
    """Compute as Python does. Raises: ArithmeticError, ValueError or TypeError as Python does."""
    if symbol in ("<<", "**") and isinstance(left, int) and isinstance(right, int):
        bits = right if symbol == "<<" else right * left.bit_length()
        if bits > _LONGEST_INT:
            raise OverflowError(_TOO_LONG)
    result = FOLDS[symbol](left, right)
    if isinstance(result, int) and result.bit_length() > _LONGEST_INT:
        raise OverflowError(_TOO_LONG)
    return result

"""Compute operations on constants where every device must give the same bits.

All NaNs count as one. Results that may differ between devices are not computed: numbers that some
devices flush to zero, functions that are not rounded exactly, the bits of a NaN.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable

from hal_core.dtypes import STORAGE_DTYPES, DType, float32
from hal_kernel.ir.uop import COMPARISON, FLOAT_UNARY, UOp

Number = int | float | bool

# Ops whose result is a NaN if an operand is one.
_NAN_OF_NAN = (FLOAT_UNARY | {"ADD", "SUB", "MUL", "DIV", "ATAN2", "FMOD", "FMA"}) - {"ISNAN"}

_FLOAT32 = struct.Struct("f")
_EXACT = 2**53  # up to here a double holds every integer
_LEAST_NORMAL = {4: 2.0**-126, 8: 2.0**-1022}  # itemsize -> the smallest normal float


def evaluate(node: UOp, values: list[Number]) -> Number | None:
    """Return the node's value, given those of its sources; None where devices may differ."""
    dtype = node.dtype
    if dtype is None or dtype in STORAGE_DTYPES:
        return None
    # A number this small may be a subnormal float32, which some devices flush to zero.
    if any(isinstance(v, float) and 0 < abs(v) < _LEAST_NORMAL[4] for v in values):
        return None
    if node.op == "CAST":
        return _cast(values[0], dtype)
    if node.op == "BITCAST":
        source, value = node.src[0].dtype, values[0]
        if source is None or value != value:
            return None
        found: Number = struct.unpack(dtype.format, struct.pack(source.format, value))[0]
        return None if found != found else held(found, dtype)
    if node.op in COMPARISON:
        return _COMPARISONS[node.op](*values)
    if node.op in _NAN_OF_NAN and any(value != value for value in values):
        return math.nan
    compute = (_FLOATS if dtype.is_float else _INTEGERS).get(node.op)
    width = (8 * dtype.itemsize,) if node.op in ("SHL", "SHR") else ()
    return None if compute is None else held(compute(*values, *width), dtype)


def spreads_nan(node: UOp, sources: list[UOp], values: list[Number | None]) -> bool:
    """Tell whether the node is NaN because a source is; `values` are None where not known."""
    if node.op not in _NAN_OF_NAN or node.dtype is None or not node.dtype.is_float:
        return False
    for source, value in zip(sources, values, strict=True):
        if source.op == "BITCAST" and source.src[0].op == "CONST":
            # A BITCAST to a NaN is not folded: a second BITCAST would give all its bits back.
            bits, dtype = source.src[0], source.dtype
            if bits.dtype and dtype and dtype.is_float:
                value = struct.unpack(dtype.format, struct.pack(bits.dtype.format, bits.arg))[0]
        if value is not None and value != value:
            return True
    return False


def constant(node: UOp) -> Number | None:
    """Return the value of a CONST, floats rounded to their dtype; None if it is too large."""
    dtype = node.dtype
    if dtype is None or not isinstance(node.arg, (int, float)):
        return None
    try:
        return rounded(float(node.arg), dtype) if dtype.is_float else held(node.arg, dtype)
    except OverflowError:
        return None


def held(value: Number, dtype: DType) -> Number | None:
    """Return `value` as `dtype` holds it: integers wrap, floats round; None if devices differ."""
    if dtype.is_float:
        number = rounded(float(value), dtype)
        # A result of exactly the smallest normal number may be a subnormal rounded up.
        small = 0 < abs(number) <= _LEAST_NORMAL[dtype.itemsize]
        return None if small else number
    if dtype.kind == "b":
        return bool(value)
    bits = 8 * dtype.itemsize
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped - (1 << bits) if dtype.kind == "i" and wrapped >> (bits - 1) else wrapped


def rounded(value: float, dtype: DType) -> float:
    """Return `value` rounded to `dtype`, which is a float."""
    if dtype is not float32:
        return float(value)
    try:
        number: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return number


def _cast(value: Number, dtype: DType) -> Number | None:
    if dtype.kind == "b":
        return value != 0
    if dtype.is_float:
        rounds_once = isinstance(value, float) or abs(value) <= _EXACT or dtype is not float32
        return held(value, dtype) if rounds_once else None
    if isinstance(value, float):
        if value != value:
            return 0
        inside = max(dtype.min, min(dtype.max, value))  # compares exactly
        return int(inside)
    return held(value, dtype)


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    """Return `function` for floats: a result of zero keeps the sign, infinities and NaNs pass."""
    return lambda a: math.copysign(function(a), a) if math.isfinite(a) else a


_COMPARISONS: dict[str, Callable[..., bool]] = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
    "EQ": operator.eq, "NE": operator.ne,
}  # fmt: skip

_BOTH: dict[str, Callable[..., Number]] = {
    "ADD": operator.add, "SUB": operator.sub, "MUL": operator.mul, "NEG": operator.neg,
    "ABS": abs,
    "MIN": lambda a, b: b if b < a else a,
    "MAX": lambda a, b: b if b > a else a,
}  # fmt: skip

_INTEGERS: dict[str, Callable[..., Number]] = {
    **_BOTH,
    "FLOORDIV": lambda a, b: a // b if b else 0,
    "MOD": lambda a, b: a % b if b else 0,
    "TRUNCDIV": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0,
    "TRUNCMOD": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1) if b else 0,
    "SHL": lambda a, b, bits: a << b % bits,
    "SHR": lambda a, b, bits: a >> b % bits,
    "AND": operator.and_, "OR": operator.or_, "XOR": operator.xor,
    "NOT": lambda a: not a if isinstance(a, bool) else ~a,
    "ISNAN": math.isnan,
}  # fmt: skip

_FLOATS: dict[str, Callable[..., float]] = {
    **_BOTH,
    "DIV": lambda a, b: (
        a / b if b
        else math.nan if not a or a != a
        else math.copysign(math.inf, a) * math.copysign(1.0, b)
    ),
    "FLOOR": _whole(math.floor),
    "CEIL": _whole(math.ceil),
    "TRUNC": _whole(math.trunc),
    "ROUND": _whole(round),
}  # fmt: skip

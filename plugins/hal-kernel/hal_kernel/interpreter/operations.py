"""Compute operations without side effects, as the table of docs/kernel-language.md defines them.

A value is a numpy array with one element per thread, or with one element that all threads share.
Integers wrap, float32 is computed in float32, and every result is rounded once. The table allows
renderers more: contraction, and a few units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from hal_kernel.interpreter.casts import bitcast, cast
from hal_kernel.ir import UOp

Array = npt.NDArray[Any]


def operation(node: UOp) -> Callable[..., Array] | None:
    """Return the function that computes a node from its sources; None for a statement or memory."""
    if node.op not in ("CAST", "BITCAST"):
        return OPERATIONS.get(node.op)
    convert = cast if node.op == "CAST" else bitcast
    source, target = node.src[0].dtype, node.dtype
    return lambda value: convert(value, source, target)  # type: ignore[arg-type]  # verified


# -- integers


def _quotient(divide: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Return a division of integers: by zero it gives 0, and the least integer by -1 wraps."""

    def quotient(a: Array, b: Array) -> Array:
        known = np.where(_minus_one(b), -a, divide(a, _divisor(a, b)))
        return np.where(b == 0, a.dtype.type(0), known)

    return quotient


def _divisor(a: Array, b: Array) -> Array:
    """Return b, or 1 where the division would fail or overflow: the caller replaces the result."""
    return np.where((b == 0) | _minus_one(b), a.dtype.type(1), b)


def _minus_one(b: Array) -> Array:
    return b == -1 if b.dtype.kind == "i" else np.zeros(b.shape, bool)


def _shl(a: Array, b: Array) -> Array:
    bits = np.dtype(f"u{a.itemsize}")
    shifted: Array = np.left_shift(a.view(bits), _amount(b).view(bits))
    return shifted.view(a.dtype)


def _amount(b: Array) -> Array:
    """Return the amount of a shift, modulo the width."""
    return np.asarray(b & b.dtype.type(8 * b.itemsize - 1))


# -- floats


def _rounded(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return `function` computed with more bits, then rounded: nearly always the nearest number."""

    def compute(*values: Array) -> Array:
        dtype = values[0].dtype
        wide = np.float64 if dtype == np.float32 else np.longdouble
        return function(*(value.astype(wide) for value in values)).astype(dtype)

    return compute


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c, rounded once."""
    if a.dtype == np.float64:
        return _fma64(a, b, c)
    a, b, c = (value.astype(np.float64) for value in (a, b, c))
    # Rounding twice gives the result of rounding once, if the first rounding is to odd.
    return _to_odd(*_two_sum(a * b, c)).astype(np.float32)  # a * b is exact in float64


def _fma64(a: Array, b: Array, c: Array) -> Array:
    """Compute with sums of two floats where no part can overflow or underflow, else with fractions.

    Source: Boldo and Melquiond, Emulation of a FMA and correctly rounded sums (2008).
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    size = abs(product)
    within = (size > 2.0**-900) & (size < 2.0**1000) & (abs(c) < 2.0**1000)
    within &= (abs(a) < 2.0**990) & (abs(b) < 2.0**990)
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    lost = a_high * b_high - product + a_high * b_low + a_low * b_high + a_low * b_low
    added, rest_added = _two_sum(c, lost)
    high, low = _two_sum(product, added)
    result = high + _to_odd(*_two_sum(rest_added, low))
    plain = ~np.isfinite(a) | ~np.isfinite(b) | (a == 0) | (b == 0)
    result = np.asarray(np.where(plain, product + c, result))
    rest = ~plain & ~(within & (result != 0))  # the sign of a zero is not known yet
    if rest.any():
        result[rest] = [*map(_exact_fma, a[rest].tolist(), b[rest].tolist(), c[rest].tolist())]
    return result


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the rounded sum, and its rounding error (Knuth)."""
    total = a + b
    grown: Array = total - a
    return total, (a - (total - grown)) + (b - grown)


def _halves(value: Array) -> tuple[Array, Array]:
    """Split 53 bits into two parts of 26, whose products are exact (Veltkamp)."""
    spread = value * (2.0**27 + 1)
    high = spread - (spread - value)
    return high, value - high


def _to_odd(total: Array, lost: Array) -> Array:
    """Round total + lost to the neighbour whose last bit is odd, unless it is exact."""
    bits = np.asarray(total).view(np.int64)
    even = (lost != 0) & np.isfinite(lost) & (bits & 1 == 0)
    step = np.where((lost > 0) == (total > 0), 1, -1)
    return np.where(even, bits + step, bits).view(np.float64)


def _exact_fma(a: float, b: float, c: float) -> float:
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        return a * b + c  # the sign of a zero
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


# numpy's type of it leaves open whether it chooses or counts.
choose: Callable[[Array, Array, Array], Array] = np.where

OPERATIONS: dict[str, Callable[..., Array]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "NEG": np.negative,
    "ABS": np.abs,  # the least integer gives itself
    # Like Python's min and max: only a NaN in the first argument is kept.
    "MIN": lambda a, b: choose(b < a, b, a),
    "MAX": lambda a, b: choose(b > a, b, a),
    "FLOORDIV": _quotient(np.floor_divide),
    # The sign is that of b, as in Python; by zero gives 0.
    "MOD": lambda a, b: np.where((b == 0) | _minus_one(b), a.dtype.type(0), a % _divisor(a, b)),
    "TRUNCDIV": _quotient(lambda a, b: (a - np.fmod(a, b)) // b),  # towards zero, as C
    # The sign is that of a, as in C; by zero gives 0.
    "TRUNCMOD": lambda a, b: np.where(b == 0, a.dtype.type(0), np.fmod(a, _divisor(a, b))),
    "SHL": _shl,
    "SHR": lambda a, b: np.asarray(a >> _amount(b)),  # a signed integer keeps its sign
    "AND": np.bitwise_and,
    "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
    "NOT": np.invert,  # logical for bools
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
    "WHERE": np.where,
    "DIV": np.divide,
    "FMA": fma,
    "SQRT": np.sqrt,
    "FLOOR": np.floor,
    "CEIL": np.ceil,
    "TRUNC": np.trunc,
    "ROUND": np.rint,  # half to even
    "FMOD": np.fmod,  # exact, with the sign of the first
    "ISNAN": np.isnan,
    "RSQRT": _rounded(lambda x: 1 / np.sqrt(x)),
    "EXP": _rounded(np.exp),
    "EXP2": _rounded(np.exp2),
    "LOG": _rounded(np.log),
    "LOG2": _rounded(np.log2),
    "SIN": _rounded(np.sin),
    "COS": _rounded(np.cos),
    "TAN": _rounded(np.tan),
    "TANH": _rounded(np.tanh),
    "ATAN": _rounded(np.arctan),
    "ATAN2": _rounded(np.arctan2),
    # Zeros and infinities are computed in their own dtype, because glibc gives a wrong
    # (-inf) ** -2**63 for long doubles.
    "POW": lambda a, b: np.where(
        np.isfinite(a) & (a != 0), _rounded(np.power)(a, b), np.power(a, b)
    ),
}

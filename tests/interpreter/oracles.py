"""A second implementation of every operation, in Python's integers and fractions."""

import math
import struct
from fractions import Fraction

from hal_core.dtypes import DTYPES

# Bits of the significand, least exponent of a normal number, largest exponent.
FORMATS = {
    "float16": (11, -14, 15), "bfloat16": (8, -126, 127), "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}  # fmt: skip


def nearest(exact, dtype, sign=1.0):
    """Round half to even; `sign` is the sign of an exact zero."""
    bits, least, most = FORMATS[dtype.name]
    if not exact:
        return math.copysign(0.0, sign)
    exponent = max(_exponent(abs(exact)), least)
    quantum = Fraction(2) ** (exponent - bits + 1)
    rounded = round(abs(exact) / quantum) * quantum
    if rounded >= Fraction(2) ** (most + 1):
        return -math.inf if exact < 0 else math.inf
    return -float(rounded) if exact < 0 else float(rounded)


def _exponent(exact):
    guess = exact.numerator.bit_length() - exact.denominator.bit_length()
    return guess if Fraction(2) ** guess <= exact else guess - 1


def wrap(value, dtype):
    value &= (1 << 8 * dtype.itemsize) - 1
    return value - (1 << 8 * dtype.itemsize) if value > dtype.max else value


def same(got, expected):
    """Compare also the signs of zeros; all NaNs are equal."""
    if isinstance(expected, float):
        if math.isnan(expected):
            return math.isnan(got)
        return bool(got == expected and math.copysign(1, got) == math.copysign(1, expected))
    return type(expected) is type(got) and bool(got == expected)


# -- arithmetic

INTEGER = {
    "ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b,
    "FLOORDIV": lambda a, b: a // b if b else 0, "MOD": lambda a, b: a % b if b else 0,
    "TRUNCDIV": lambda a, b: math.trunc(Fraction(a, b)) if b else 0,
    "TRUNCMOD": lambda a, b: a - b * math.trunc(Fraction(a, b)) if b else 0, "MIN": min, "MAX": max,
    "NEG": lambda a: -a, "ABS": abs,
}  # fmt: skip
BITS = {
    "AND": lambda a, b: a & b, "OR": lambda a, b: a | b, "XOR": lambda a, b: a ^ b,
}  # fmt: skip
COMPARISONS = {
    "LT": lambda a, b: a < b, "LE": lambda a, b: a <= b, "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b, "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b,
}  # fmt: skip


def integer(op, dtype, *values):
    if op in ("SHL", "SHR"):
        amount = values[1] % (8 * dtype.itemsize)
        return wrap(values[0] << amount if op == "SHL" else values[0] >> amount, dtype)
    if op == "NOT":
        return wrap(-values[0] - 1, dtype)
    return wrap((INTEGER.get(op) or BITS[op])(*values), dtype)


def real(op, dtype, *values):
    """Compute ADD, SUB, MUL, DIV or FMA; Python's own floats serve where a number is not finite."""
    if all(map(math.isfinite, values)) and not (op == "DIV" and not values[1]):
        exact, sign = _exact(op, *values)
        return nearest(exact, dtype, sign)
    if op == "DIV":
        a, b = values
        if b:
            return a / b
        return math.nan if not a or math.isnan(a) else a * math.copysign(math.inf, b)
    if op == "FMA":
        a, b, c = values
        return a * b + c if not (math.isfinite(a) and math.isfinite(b)) else c
    a, b = values
    return {"ADD": a + b, "SUB": a - b, "MUL": a * b}[op]


def _exact(op, *values):
    """Return the exact result, and its sign should it be zero."""
    a, b, *rest = (Fraction(value) for value in values)
    signs = [math.copysign(1, value) for value in values]
    if op == "MUL":
        return a * b, signs[0] * signs[1]
    if op == "DIV":
        return a / b, signs[0] * signs[1]
    if op == "FMA":
        a, b, signs = a * b, rest[0], [signs[0] * signs[1], signs[2]]
    if op == "SUB":
        b, signs = -b, [signs[0], -signs[1]]
    return a + b, -1.0 if a == b == 0 and signs == [-1, -1] else 1.0


def whole(op, value):
    if not math.isfinite(value):
        return value
    functions = {
        "FLOOR": math.floor, "CEIL": math.ceil, "TRUNC": math.trunc, "ROUND": round,
    }  # fmt: skip
    return math.copysign(float(functions[op](value)), value)


# -- casts


def cast(value, source, target):
    if target.kind == "b":
        return value != 0
    if target.is_float:
        if source.is_float and not math.isfinite(value):
            return value
        sign = math.copysign(1, value) if source.is_float else 1.0
        return nearest(Fraction(value), target, sign)
    if source.is_float:
        if math.isnan(value):
            return 0
        return int(max(target.min, min(target.max, value)))
    return wrap(int(value), target)


def bits(value, source, target):
    return struct.unpack(target.format, struct.pack(source.format, value))[0]


# -- what to try


def numbers(dtype):
    """Return values at which an operation's behaviour changes."""
    if dtype.kind == "b":
        return [False, True]
    if dtype.is_integer:
        width = 8 * dtype.itemsize
        near = {v + d for v in (0, dtype.min, dtype.max, 1 << width // 2) for d in range(-3, 4)}
        near |= {7, 100, 1 << width - 2, width, width - 1, width + 1, -width}
        return sorted(v for v in near if dtype.min <= v <= dtype.max)
    step, least, _ = FORMATS[dtype.name]
    tiny, ulp = 2.0 ** (least - step + 1), 2.0 ** (1 - step)
    halves = [k / 2 for k in range(6)]
    edges = [tiny, 3 * tiny, 2.0**least, 2.0**least - tiny, dtype.max, dtype.max / 3, 1 + ulp]
    others = [1 - ulp / 2, 2.0 ** (step - 1) - 0.5, 2.0**step + 2, 0.1, math.pi, 1e10, 12345.678]
    powers = [2.0**k + d for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, 0, 1)]
    values = [*halves, *edges, *others, *powers, math.inf]
    made = [nearest(Fraction(v), dtype) if math.isfinite(v) else v for v in values]
    return [*made, *(-v for v in made), math.nan]


INTEGERS = [dtype for dtype in DTYPES.values() if dtype.is_integer]
FLOATS = [DTYPES["float32"], DTYPES["float64"]]
COMPUTED = [DTYPES["bool"], *INTEGERS, *FLOATS]

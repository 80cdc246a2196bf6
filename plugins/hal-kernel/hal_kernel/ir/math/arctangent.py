"""The formulas of atan, atan2, asin and acos.

For a large x, atan(x) = pi/2 + atan(-1/x); for an x near 1, it is pi/4 + atan((x - 1) / (x + 1)).
So the argument of the polynomial is at most tan(pi/8).
"""

from __future__ import annotations

from hal_core.dtypes import float32, float64
from hal_kernel.ir.math.value import Table, Value

_LOW, _HIGH = 0.41421356237309503, 2.414213562373095  # tan(pi/8) and tan(3 pi/8)
PI: Table = {  # pi, as a sum of two numbers
    float32: (3.1415927410125732, -8.742277657347586e-08),
    float64: (3.141592653589793, 1.2246467991473532e-16),
}

# (atan(t) - t) / t**3 as a polynomial in t**2, |t| <= 0.4143: minimax fits (Remez) of degree 4 and
# 11, computed with 60 digits; their error is 2**-30 and 2**-64 of the arctangent.
_ATAN: Table = {
    float32: (
        -0.3333331546450584, 0.19998486718785322, -0.1424379372530234, 0.10595570276486979,
        -0.06082303423404198,
    ),
    float64: (
        -0.33333333333333326, 0.19999999999997944, -0.14285714285414616, 0.11111111089532062,
        -0.09090908185998954, 0.07692283576263151, -0.06666237496468295, 0.05877116779356353,
        -0.05218963355925608, 0.04505647872836224, -0.03351992937676784, 0.01523843314844145,
    ),
}  # fmt: skip


def atan(x: Value) -> Value:
    return _of_positive(abs(x)).with_sign_of(x)


def _of_positive(x: Value) -> Value:
    """Return the arc tangent of an x that is not negative."""
    middle, large = x > _LOW, x > _HIGH
    above = large.where(-1.0, middle.where(x - 1.0, x))
    below = large.where(x, middle.where(x + 1.0, x.const(1.0)))
    quarters = large.where(2.0, middle.where(1.0, x.const(0.0)))
    t = above / below
    z = t * t
    high, low = (part / 4 for part in PI[x.dtype])
    rest = quarters.fma(low, z.polynomial(_ATAN[x.dtype]) * (z * t))
    return quarters.fma(high, t + rest)


def asin(x: Value) -> Value:
    """The arc tangent of |x| / sqrt(1 - x**2)."""
    size = abs(x)
    adjacent = ((1.0 - size) * (size + 1.0)).apply("SQRT")
    return _of_positive(size / adjacent).with_sign_of(x)


def acos(x: Value) -> Value:
    """Twice the arc tangent of sqrt((1 - x) / (1 + x))."""
    half = _of_positive(((1.0 - x) / (x + 1.0)).apply("SQRT"))
    return half + half


def atan2(y: Value, x: Value) -> Value:
    """The angle of the point (x, y), from -pi to pi; zeros count as if they were tiny."""
    height, width = abs(y), abs(x)
    alike = height.equals(0.0).where(0.0, height.const(1.0))  # for 0 / 0 and infinity / infinity
    ratio = height.equals(width).where(alike, height / width)
    angle = _of_positive(ratio)
    high, low = PI[y.dtype]
    is_left = x.bits() < 0  # also for -0.0
    return is_left.where(high - (angle - low), angle).with_sign_of(y)

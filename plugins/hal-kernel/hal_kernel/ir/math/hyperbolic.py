"""The formulas of sinh, cosh, tanh and their inverses, from exp(x) - 1 and log(1 + x)."""

from __future__ import annotations

from hal_core.dtypes import DType, float32, float64
from hal_kernel.ir.math.exponential import bounded, expm1_near_zero, power_of_two, reduced, scaled
from hal_kernel.ir.math.logarithm import INFINITY, NAN, log1p
from hal_kernel.ir.math.value import Value

_LN2 = 0.6931471805599453
_NEGLIGIBLE = 22.0  # from this x on exp(-x) is below the last digit of exp(x)
_LARGE: dict[DType, float] = {float32: 2.0**30, float64: 2.0**60}  # to add 1 changes nothing


def sinh(x: Value) -> Value:
    """With E = exp(|x|) - 1: (E + E / (E + 1)) / 2."""
    size = abs(x)
    n, r = reduced(bounded(size))
    grown = expm1_near_zero(r, x.dtype)
    power = power_of_two(n.apply("MIN", 60.0))  # `small` is used for small n only
    risen = grown.fma(power, power - 1.0)
    small = (risen + risen / (risen + 1.0)) * 0.5
    large = scaled(grown + 1.0, n - 1.0)
    return (size < _NEGLIGIBLE).where(small, large).with_sign_of(x)


def cosh(x: Value) -> Value:
    """With e = exp(|x|) / 2: e + 1 / (4 e)."""
    n, r = reduced(bounded(abs(x)))
    half = scaled(expm1_near_zero(r, x.dtype) + 1.0, n - 1.0)
    return half + 0.25 / half


def tanh(x: Value) -> Value:
    """With E = exp(-2 |x|) and h = (1 - E) / 2: h / (1 - h) = 1 - E / (1 - h).

    The second form is for large x; the first, as w = h + h w, keeps small ones accurate.
    """
    n, r = reduced(-abs(x + x).apply("MIN", 44.0))
    power, grown = power_of_two(n), expm1_near_zero(r, x.dtype)
    h = grown.fma(power, power - 1.0) * -0.5
    decayed = (grown + 1.0) * power
    large = decayed < 0.25
    quotient = large.where(decayed, h) / (1.0 - h)
    return large.where(1.0 - quotient, h.fma(quotient, h)).with_sign_of(x)


def asinh(x: Value) -> Value:
    """log(1 + z) with z = |x| + x**2 / (1 + sqrt(1 + x**2)); for a large x log(|x|) + log(2)."""
    size = abs(x)
    large = size > _LARGE[x.dtype]
    square = size * size
    z = size + square / ((square + 1.0).apply("SQRT") + 1.0)
    return _logarithm(large, size, z).with_sign_of(x)


def acosh(x: Value) -> Value:
    """log(1 + z) with z = t + sqrt(t (t + 2)), t = x - 1; for a large x log(x) + log(2)."""
    large = x > _LARGE[x.dtype]
    t = x - 1.0
    result = _logarithm(large, x, t + (t * (t + 2.0)).apply("SQRT"))
    return (x < 1.0).where(NAN, result)


def _logarithm(large: Value, x: Value, z: Value) -> Value:
    """Return log(x) + log(2) where x is large, because 2 x may overflow, else log(1 + z)."""
    added = large.where(_LN2, x.const(0.0))
    return log1p(large.where(x, z)) + added


def atanh(x: Value) -> Value:
    """log(1 + 2 |x| / (1 - |x|)) / 2."""
    size = abs(x)
    whole = size.equals(1.0)
    result = log1p((size + size) / (1.0 - size)) * 0.5
    return whole.where(INFINITY, result).with_sign_of(x)

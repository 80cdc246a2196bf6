"""The formulas of pow and hypot.

pow(x, y) = 2**(y log2(x)). A float32 is computed in float64; for float64 the logarithm is a sum of
two numbers.
"""

from __future__ import annotations

from hal_core.dtypes import float32, float64
from hal_kernel.ir.math.exponential import exp2
from hal_kernel.ir.math.logarithm import INFINITY, LOG2E, NAN, near_one, of_special, parts
from hal_kernel.ir.math.value import Value

_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)  # as a sum
# (log((1 + s) / (1 - s)) - 2 s - 2/3 s**3) / s**5 as a polynomial in s**2, |s| <= 0.1717: a minimax
# fit (Remez) computed with 60 digits; its error is 2**-65 of the logarithm.
_SERIES = (
    0.40000000000000785, 0.2857142857069947, 0.22222222425980515, 0.18181791732066477,
    0.15386448741712785, 0.13263428093823262, 0.1313939070223886,
)  # fmt: skip


def power(x: Value, y: Value) -> Value:
    """C's pow, with its results for zeros, infinities, NaNs and negative bases."""
    base, exponent = x.cast(float64), y.cast(float64)
    positive = abs(base)
    one = exponent.equals(0.0) | positive.equals(1.0)
    if x.dtype is float64:
        high, low = _log2_as_sum(positive)
        product = exponent.times(high)
        rest = exponent.fma(high, -product) + exponent * low
        # Beyond 1100 the result is 0 or infinite, and an infinity would make `rest` a NaN.
        small = abs(product) < 1100.0
        size = exp2(product, small.where(rest, positive.const(0.0)))
    else:  # one float64 holds the logarithm with all digits that a float32 result needs
        e, f = parts(positive)
        half, rest = near_one(f, float32)
        logarithm = of_special(positive, (f - (half - rest)).fma(LOG2E[float64][0], e))
        size = exp2(exponent * logarithm, accuracy=float32)
    value = one.where(1.0, size)
    whole, half = exponent.apply("TRUNC"), exponent * 0.5
    odd = whole.equals(exponent) & half.compare("NE", half.apply("TRUNC"))
    value = (odd & (base.bits() < 0)).where(-value, value)
    undefined = (base < 0.0) & (base > -INFINITY) & whole.compare("NE", exponent)
    return undefined.where(NAN, value).cast(x.dtype)


def hypot(x: Value, y: Value) -> Value:
    """large * sqrt(1 + (small / large)**2), so that no square overflows or underflows."""
    x, y = abs(x), abs(y)
    large, small = (x < y).where(y, x), (x < y).where(x, y)
    ratio = (large.equals(0.0) & small.equals(0.0)).where(0.0, small / large)
    result = large * ratio.fma(ratio, 1.0).apply("SQRT")
    return (x.equals(INFINITY) | y.equals(INFINITY)).where(INFINITY, result)


def _log2_as_sum(x: Value) -> tuple[Value, Value]:
    """Return log2(x) as a sum of two numbers, accurate to 2**-64 of itself."""
    e, f = parts(x)
    below = f + 2.0
    inverse = 1.0 / below
    s = f.times(inverse)
    s_rest = ((-s).fma(below, f) - s * (f - (below - 2.0))) * inverse
    z = s.times(s)
    z_rest = s.fma(s, -z) + (s + s) * s_rest
    cube = s.times(z)
    cube_rest = s.fma(z, -cube) + (s * z_rest + s_rest * z)
    series = z.times(z.polynomial(_SERIES))
    factor = series + _TWO_THIRDS[0]
    factor_rest = ((_TWO_THIRDS[0] - factor) + series) + _TWO_THIRDS[1]
    term = cube.times(factor)
    term_rest = cube.fma(factor, -term) + (cube * factor_rest + cube_rest * factor)
    twice = s + s
    natural = twice + term
    natural_rest = ((twice - natural) + term) + (term_rest + (s_rest + s_rest))
    log2e, log2e_rest = LOG2E[float64]
    scaled = natural.times(log2e)
    scaled_rest = natural.fma(log2e, -scaled) + (natural * log2e_rest + natural_rest * log2e)
    total = e + scaled
    return of_special(x, total), ((e - total) + scaled) + scaled_rest

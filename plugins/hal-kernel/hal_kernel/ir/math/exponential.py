"""The formulas of exp, exp2 and expm1.

exp(x) = 2**n * exp(r) with x = n ln 2 + r and |r| <= ln(2) / 2; 2**n is put together from bits.
"""

from __future__ import annotations

from hal_core.dtypes import DType, float32, float64
from hal_kernel.ir.math.value import Table, Value

LOG2E = 1.4426950408889634
LN2: Table = {  # ln 2, as a sum of two numbers
    float32: (0.6931471824645996, -1.904654323148236e-09),
    float64: (0.6931471805599453, 2.3190468138462996e-17),
}

# (exp(r) - 1 - r) / r**2 for |r| <= 0.3468: minimax fits (Remez) of degree 5 and 10, computed with
# 60 digits; their error moves exp(r) by 2**-32 and 2**-61.
_EXP: Table = {
    float32: (
        0.5000000044268779, 0.16666666369722427, 0.04166636042658902,
        0.008333389463708925, 0.001394066860618488, 0.0001984587939672479,
    ),
    float64: (
        0.5, 0.16666666666666677, 0.04166666666666651, 0.008333333333321653,
        0.0013888888888962541, 0.00019841269886074897, 2.480158717233378e-05,
        2.7557244252791644e-06, 2.7557402698436586e-07, 2.5109024929756194e-08,
        2.0875350343152156e-09,
    ),
}  # fmt: skip
# Beyond these exponents of 2 every result is 0 or infinite, also the halves that sinh and cosh use.
_RANGE: Table = {float32: (-152.0, 130.0), float64: (-1078.0, 1026.0)}


def exp(x: Value) -> Value:
    n, r = reduced(bounded(x))
    return scaled(expm1_near_zero(r, x.dtype) + 1.0, n)


def exp2(x: Value, tail: Value | None = None, accuracy: DType | None = None) -> Value:
    """2**(x + tail), as accurate as `accuracy` needs; `tail` is below the last digit of x."""
    x = x.between(*_RANGE[x.dtype])
    shifter = x.format.shifter
    n = (x + shifter) - shifter
    fraction = x - n if tail is None else (x - n) + tail
    r = fraction.times(LN2[x.dtype][0])
    return scaled(expm1_near_zero(r, accuracy or x.dtype) + 1.0, n)


def expm1(x: Value) -> Value:
    """2**n * (exp(r) - 1) + (2**n - 1), which for a large n is exp(x)."""
    n, r = reduced(bounded(x))
    grown = expm1_near_zero(r, x.dtype)
    power = power_of_two(n.between(-60.0, 60.0))
    small = grown.fma(power, power - 1.0)
    return (n < 60.0).where(small, scaled(grown + 1.0, n)).with_sign_of(x)


def bounded(x: Value) -> Value:
    """Clamp x to the range in which the exponential is neither 0 nor infinite."""
    low, high = (power / LOG2E for power in _RANGE[x.dtype])
    return x.between(low, high)


def reduced(x: Value) -> tuple[Value, Value]:
    """Return n and r with x = n ln 2 + r, n an integer and |r| at most half of ln 2."""
    shifter = x.format.shifter
    n = x.fma(LOG2E, shifter) - shifter
    high, low = LN2[x.dtype]
    return n, n.fma(-low, n.fma(-high, x))


def expm1_near_zero(r: Value, accuracy: DType) -> Value:
    """exp(r) - 1 = r + r**2 P(r), with P as accurate as `accuracy` needs."""
    return r.times(r).fma(r.polynomial(_EXP[accuracy]), r)


def power_of_two(n: Value) -> Value:
    """Return 2**n for an n that is the exponent of a normal number."""
    form = n.format
    # The sum has the exponent's bits as its low ones; the others are shifted out.
    return ((n + (form.shifter + form.bias)).bits() << form.mantissa).bitcast(n.dtype)


def scaled(value: Value, n: Value) -> Value:
    """Return value * 2**n, in two steps: 2**n may be no normal number. Only the second rounds."""
    form = n.format
    both = (n + (form.shifter + 2 * form.bias)).bitcast(form.word)
    half = both >> 1
    for exponent in (half, both - half):
        value = value * (exponent << form.mantissa).bitcast(n.dtype)
    return value

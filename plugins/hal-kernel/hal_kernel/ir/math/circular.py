"""The formulas of sin, cos and tan: x = n pi/2 + r with |r| <= pi/4, then polynomials in r.

A float32 is computed in float64, where its products with a few pieces of 2/pi are exact, however
large it is. A large float64 takes a branch of its own, which is left out if x is not `far`.
"""

from __future__ import annotations

from hal_core.dtypes import DType, float32, float64, int64
from hal_kernel.ir.math.pi_multiples import Reduced, reduced_float32, reduced_float64
from hal_kernel.ir.math.value import Table, Value

# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4 as polynomials in r**2, |r| <= 0.786:
# minimax fits (Remez), computed with 60 digits; error 2**-37 and 2**-43 for float32, 2**-68 and
# 2**-74 for float64.
_SIN: Table = {
    float32: (
        -0.16666666641426592, 0.008333329362277576, -0.00019839327135388868,
        2.7182372684691294e-06,
    ),
    float64: (
        -0.16666666666666666, 0.008333333333333323, -0.0001984126984125499,
        2.755731921414885e-06, -2.5052104900540675e-08, 1.6058365193601356e-10,
        -7.578625524907696e-13,
    ),
}  # fmt: skip
_COS: Table = {
    float32: (
        0.041666666622526716, -0.0013888883726941386, 2.4799512843421905e-05,
        -2.7209629995822003e-07,
    ),
    float64: (
        0.041666666666666664, -0.0013888888888888879, 2.4801587301574803e-05,
        -2.7557319216595817e-07, 2.0876754607164852e-09, -1.1470317631780288e-11,
        4.7391002517834504e-14,
    ),
}  # fmt: skip


def sin(x: Value, far: bool = True) -> Value:
    wide, angle = _reduced(x, far)
    sine, cosine = _both(angle, x.dtype)
    value = _is_even(angle).where(sine, cosine)
    return _negated(value, (angle.quadrant << 62) ^ wide.bits()).cast(x.dtype)


def cos(x: Value, far: bool = True) -> Value:
    _, angle = _reduced(x, far)
    sine, cosine = _both(angle, x.dtype)
    value = _is_even(angle).where(cosine, sine)
    return _negated(value, (angle.quadrant + 1) << 62).cast(x.dtype)


def tan(x: Value, far: bool = True) -> Value:
    wide, angle = _reduced(x, far)
    sine, cosine = _both(angle, x.dtype)
    even = _is_even(angle)
    value = even.where(sine, cosine) / even.where(cosine, sine)
    return _negated(value, (angle.quadrant << 63) ^ wide.bits()).cast(x.dtype)


def _reduced(x: Value, far: bool) -> tuple[Value, Reduced]:
    """Return x as float64, and the reduction of its magnitude."""
    wide = x.cast(float64)
    if x.dtype is float32:
        return wide, reduced_float32(abs(wide))
    return wide, reduced_float64(abs(wide), far)


def _is_even(angle: Reduced) -> Value:
    return (angle.quadrant & 1).equals(0)


def _negated(value: Value, sign: Value) -> Value:
    """Return -value where the top bit of `sign` is set, else value."""
    return (value.bits() ^ (sign & int(int64.min))).bitcast(float64)


def _both(angle: Reduced, dtype: DType) -> tuple[Value, Value]:
    """Return the sine and the cosine of r + tail, as accurate as `dtype` needs."""
    r, tail = angle.r, angle.tail
    z = r * r
    sine = z.polynomial(_SIN[dtype]) * (z * r)
    cosine = z.polynomial(_COS[dtype]) * (z * z)
    half = z * 0.5
    one = 1.0 - half
    if tail is None:
        return r + sine, one + cosine
    rest = ((1.0 - one) - half) + (cosine - r * tail)
    return r + tail.fma(one, sine), one + rest

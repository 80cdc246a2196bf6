"""The formula that rounds a number once to a 16-bit float, by way of float32."""

from __future__ import annotations

from hal_core.dtypes import float32
from hal_kernel.ir.math.value import Value


def to_odd(x: Value) -> Value:
    """Return x as a float32, rounded to the neighbour whose last bit is odd where it is inexact.

    The odd bit tells the next rounding, to fewer bits, that digits are lost: no tie is made.
    """
    nearest = x.cast(float32)
    back = nearest.cast(x.dtype)
    below, above = back < x, back > x  # both false for a NaN, and for an infinity
    outward = below.apply("EQ", x > 0)  # away from zero; the bits of a float grow that way
    bits = nearest.bits()
    even = (bits & 1).equals(0)
    step = outward.where(1, bits.const(-1))
    return ((below | above) & even).where(bits + step, bits).bitcast(float32)

"""Subtract multiples of pi/2 from an angle, however large it is.

The remainder is accurate relative to its own size. That is hard, because a float can be within
2**-60 of a multiple of pi/2.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hal_core.dtypes import int64, uint64
from hal_kernel.ir.math.value import Value, Variable

_TWO_OVER_PI = 0.6366197723675814
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)  # as a sum


class Reduced(NamedTuple):
    """An angle as quadrant * pi/2 + (r + tail); only the two low bits of the quadrant count."""

    quadrant: Value
    r: Value
    tail: Value | None


# Bits of 2/pi, 29 and then 53 at a time: a float32 times 29 bits is exact in float64. The second
# column leaves out the first 58 bits: times a float32 of 2**83 or more they are whole turns.
_LARGEST_WITH_ALL_BITS = 2.0**83
_PIECES = (
    (0.636619770899415, 2.2760100671971816e-18),
    (1.4681663246252086e-09, 5.8812147387730434e-27),
    (2.2760100671971816e-18, 1.0346868700836215e-35),
    (5.881214749119912e-27, 3.7832563882960676e-45),
)


def reduced_float32(x: Value) -> Reduced:
    """Reduce the value of a positive float32, given in float64."""
    far = x > _LARGEST_WITH_ALL_BITS
    *products, rest = (x * far.where(high, x.const(low)) for low, high in _PIECES)
    quarters = total = x.const(0.0)
    for product in products:
        # Whole turns (4 quarters) are subtracted first, so that the sum of quarters stays small.
        whole, fraction = _split((product * 0.25).apply("ROUND").fma(-4.0, product))
        quarters += whole
        total += fraction
    whole, fraction = _split(total + rest)
    quadrant = ((quarters + whole) + x.format.shifter).bits()
    return Reduced(quadrant, fraction * _HALF_PI[0], None)


def _split(value: Value) -> tuple[Value, Value]:
    """Return the nearest integer, and the difference to it."""
    shifter = value.format.shifter
    whole = (value + shifter) - shifter
    return whole, value - whole


LARGE = 2.0**27  # from here on pi/2 as a sum of three is not accurate enough


def reduced_float64(x: Value, far: bool = True) -> Reduced:
    """Reduce a positive float64, which is less than LARGE if it is not `far`."""
    shifted = x.fma(_TWO_OVER_PI, x.format.shifter)
    n = shifted - x.format.shifter
    first = n.fma(-_HALF_PI[0], x)  # exact
    second = n.times(_HALF_PI[1])
    r = first - second
    lost = ((first - r) - second) - n.fma(_HALF_PI[1], -second)
    tail = n.fma(-_HALF_PI[2], lost)
    if not far:
        return Reduced(shifted.bits(), r, tail)
    results = [
        Variable(*given) for given in (("quadrant", shifted.bits()), ("r", r), ("tail", tail))
    ]
    large = x.compare("GE", LARGE) & (x < float("inf"))
    inside = large.statement("IF", large)
    for variable, value in zip(results, _reduced_large(x), strict=True):
        variable.set(value)
    large.statement("ENDIF", inside)
    return Reduced(*(variable.get() for variable in results))


# The bits of 2/pi after the point, 64 at a time, with 64 zeros in front for small arguments.
_WORDS = (
    0, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484,
    0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
)  # fmt: skip


def _reduced_large(x: Value) -> tuple[Value, Value, Value]:
    """Reduce a large x = m * 2**e: multiply the integer m by 192 bits of 2/pi.

    Of the product the code keeps 128 bits, in units of 2**-126 quarter turns. What lies above them,
    and the bits of 2/pi before those 192, would add whole turns. All that is cut off below them is
    less than 2**-125 quarter turns.
    """
    bits = x.bits().bitcast(uint64)
    m = (bits & ((1 << 52) - 1)) | (1 << 52)
    start = (bits >> 52) - (1023 - 10)  # the first of the 192 bits, counted in bits of _WORDS
    # 192 bits of _WORDS from the bit `start` on. The words in question are chosen in five steps,
    # without a table in memory: `place & step` drops the first `step` words.
    words: list[Value] = [start.const(word) for word in _WORDS]
    place = start >> 6
    for step, count in ((16, 19), (8, 11), (4, 7), (2, 5), (1, 4)):
        later = (place & step).compare("NE", 0)
        words = [
            later.where(words[k + step], words[k]) if k + step < len(words) else words[k]
            for k in range(count)
        ]
    shift = start & 63
    back = shift ^ 63  # with one shift more it is 64 - shift: a shift by 64 would be one by 0
    top, middle, bottom = (
        (word << shift) | ((following >> 1) >> back) for word, following in pairwise(words)
    )
    low = m * middle
    carried = low + _high_product(m, bottom)
    over = (carried < low).where(1, low - low)  # 1 if the addition wrapped, else 0
    high = m * top + _high_product(m, middle) + over
    quadrant = (high + (1 << 61)) >> 62
    nearest = (high - (quadrant << 62)).bitcast(int64)  # in units of 2**-62 quarter turns
    rounded = nearest.cast(x.dtype)
    rest = (nearest - rounded.cast(int64)).cast(x.dtype)
    rest = carried.cast(x.dtype).fma(2.0**-64, rest)
    total = rounded + rest
    rest = (rounded - total) + rest
    unit, unit_rest = _HALF_PI[0] * 2.0**-62, _HALF_PI[1] * 2.0**-62
    r = total.times(unit)
    tail = total.fma(unit, -r) + total.fma(unit_rest, rest * unit)
    return quadrant.bitcast(int64), r, tail


def _high_product(a: Value, b: Value) -> Value:
    """Return the upper 64 of the 128 bits of a product."""
    mask = (1 << 32) - 1
    a_low, a_high, b_low, b_high = a & mask, a >> 32, b & mask, b >> 32
    first = a_high * b_low + ((a_low * b_low) >> 32)
    second = a_low * b_high + (first & mask)
    return a_high * b_high + (first >> 32) + (second >> 32)

"""Define the 16-bit floats with integer arithmetic, so that no numpy dtype has to be trusted."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import hal_core as hal
from hal_testing.conformance.edges import Array


class Half(NamedTuple):
    """A float format of sixteen bits: sign, exponent, fraction."""

    exponent_bits: int

    @property
    def fraction_bits(self) -> int:
        return 15 - self.exponent_bits

    @property
    def least_exponent(self) -> int:
        """The least exponent of a normal number."""
        return 2 - (1 << self.exponent_bits - 1)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    def value(self, bits: int) -> float:
        """Return the value of a pattern of sixteen bits."""
        sign, size = -1.0 if bits >> 15 else 1.0, bits & 0x7FFF
        if size >= self.infinity:
            return math.nan if size > self.infinity else sign * math.inf
        exponent, fraction = divmod(size, 1 << self.fraction_bits)
        # A subnormal number, of exponent 0, has no hidden bit.
        whole = fraction + (1 << self.fraction_bits) * (exponent > 0)
        return sign * math.ldexp(
            whole, max(exponent - 1, 0) + self.least_exponent - self.fraction_bits
        )

    def rounded(self, value: float) -> int | None:
        """Return the pattern nearest to a float32, ties to even; None stands for any NaN."""
        if math.isnan(value):
            return None
        sign = 0x8000 if math.copysign(1.0, value) < 0 else 0
        if math.isinf(value) or value == 0:
            return sign | (self.infinity if value else 0)
        exponent = max(math.frexp(value)[1] - 1, self.least_exponent)
        steps = round(
            math.ldexp(abs(value), self.fraction_bits - exponent)
        )  # the product is exact; round() ties to even
        size = ((exponent - self.least_exponent) << self.fraction_bits) + steps
        return sign | min(size, self.infinity)


HALVES: dict[hal.DType, Half] = {hal.float16: Half(5), hal.bfloat16: Half(8)}


def values(half: Half) -> list[float]:
    """Return the values of all 65536 patterns."""
    return [half.value(bits) for bits in range(1 << 16)]


def hard_to_round(half: Half) -> Array:
    """Return float32 numbers halfway between two 16-bit floats, their neighbours, and others."""
    known = np.array(values(half)[: half.infinity : 11], np.float64)
    with np.errstate(over="ignore"):
        middles = np.append((known[:-1] + known[1:]) / 2, known).astype(np.float32)
    last = half.value(half.infinity - 1)
    # Just below the middle between the largest number and infinity.
    over = last * (1 + 2.0 ** -(half.fraction_bits + 2))
    beyond = np.array([last, over, 3.4e38, np.inf], np.float32)
    near = [middles, beyond, *(np.nextafter(middles, np.float32(end)) for end in (0, np.inf))]
    noise = np.random.default_rng(16).integers(0, 1 << 32, 4000, np.uint32)
    noise[0] = 0x7F800001  # a NaN whose upper half would be an infinity
    plain = np.concatenate(near)
    others = noise.view(np.float32), np.array([0.0, -0.0, np.nan], np.float32)
    return np.concatenate([plain, -plain, *others])

"""Floats of any format in exact fractions: what the engine's arithmetic is measured by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary format; numbers are handed on as bits."""

    exponent_bits: int
    fraction_bits: int
    nan: int  # the one that instructions give

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign > self.infinity

    def is_infinite(self, bits: int) -> bool:
        return bits & ~self.sign == self.infinity

    def is_subnormal(self, bits: int) -> bool:
        return 0 < bits & ~self.sign < 1 << self.fraction_bits

    def value(self, bits: int) -> Fraction:
        size = bits & ~self.sign
        exponent, fraction = size >> self.fraction_bits, size & ((1 << self.fraction_bits) - 1)
        whole = fraction + (1 << self.fraction_bits if exponent else 0)
        scale = max(exponent, 1) - self.bias - self.fraction_bits
        value = whole * Fraction(2) ** scale
        return -value if bits & self.sign else value

    def python(self, bits: int) -> float:
        """As a Python float, which holds every format's numbers."""
        if self.is_nan(bits):
            return math.nan
        if self.is_infinite(bits):
            return -math.inf if bits & self.sign else math.inf
        value = float(self.value(bits))
        return math.copysign(value, -1.0) if bits & self.sign else value

    def rounded(self, value: Fraction, mode: str = "rn", zero: int = 0) -> int:
        """Bits of the value; `zero` are those of a zero that is exact."""
        if not value:
            return zero
        sign = self.sign if value < 0 else 0
        size = abs(value)
        exponent = max(exponent_of(size), 1 - self.bias)
        units = round_to_whole(
            size / Fraction(2) ** (exponent - self.fraction_bits), mode, sign != 0
        )
        # One unit of the hidden bit is one of the exponent: a carry comes out right.
        bits = ((exponent + self.bias - 1) << self.fraction_bits) + units
        if bits >= self.infinity:
            inward = mode == "rz" or mode == ("rp" if sign else "rm")
            bits = self.infinity - inward
        return sign | bits

    def flushed(self, bits: int) -> int:
        return bits & self.sign if self.is_subnormal(bits) else bits


def exponent_of(size: Fraction) -> int:
    """So that 2**exponent <= size < 2**(exponent + 1)."""
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= size else exponent - 1


def round_to_whole(value: Fraction, mode: str, negative: bool) -> int:
    """Of a size: directed modes look at the sign of what it is the size of."""
    low = math.floor(value)
    rest = value - low
    if mode == "rn":
        return low + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1))
    up = (mode == "rp" and not negative) or (mode == "rm" and negative)
    return low + (up and rest > 0)


F16 = Format(5, 10, 0x7FFF)
BF16 = Format(8, 7, 0x7FFF)
F32 = Format(8, 23, 0x7FFFFFFF)
F64 = Format(11, 52, 0xFFF8000000000000)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def edges(form: Format) -> list[int]:
    """Zeros, subnormals, ones and their neighbours, the largest, infinities, NaNs."""
    one = form.bias << form.fraction_bits
    least = 1 << form.fraction_bits
    sizes = [0, 1, 2, least - 1, least, least + 1, one - 1, one, one + 1, form.infinity - 1]
    sizes += [one + (1 << (form.fraction_bits - 1)), one + (3 << (form.fraction_bits - 2)) + 1]
    sizes += [one + (5 << form.fraction_bits) + 3, one - (4 << form.fraction_bits) + 5]
    sizes += [form.infinity, form.infinity + (1 << (form.fraction_bits - 1)), form.infinity + 1]
    return [size | sign for size in sizes for sign in (0, form.sign)]


def add(form: Format, a: int, b: int, mode: str = "rn") -> int:
    return fma(form, a, form.bias << form.fraction_bits, b, mode)


def mul(form: Format, a: int, b: int, mode: str = "rn") -> int:
    if form.is_nan(a) or form.is_nan(b):
        return form.nan
    sign = (a ^ b) & form.sign
    if form.is_infinite(a) or form.is_infinite(b):
        return form.nan if not (a & ~form.sign and b & ~form.sign) else sign | form.infinity
    return form.rounded(form.value(a) * form.value(b), mode, sign)


def fma(form: Format, a: int, b: int, c: int, mode: str = "rn") -> int:
    if any(map(form.is_nan, (a, b, c))):
        return form.nan
    sign = (a ^ b) & form.sign
    if form.is_infinite(a) or form.is_infinite(b):
        nothing = not (a & ~form.sign and b & ~form.sign)
        against = form.is_infinite(c) and c & form.sign != sign
        return form.nan if nothing or against else sign | form.infinity
    if form.is_infinite(c):
        return c
    product = form.value(a) * form.value(b)
    both_zeros = not product and not form.value(c)
    same = both_zeros and sign == c & form.sign
    zero = sign if same else (form.sign if mode == "rm" else 0)
    return form.rounded(product + form.value(c), mode, zero)


def div(form: Format, a: int, b: int, mode: str = "rn") -> int:
    if form.is_nan(a) or form.is_nan(b):
        return form.nan
    sign = (a ^ b) & form.sign
    if form.is_infinite(a) or form.is_infinite(b):
        if form.is_infinite(a) and form.is_infinite(b):
            return form.nan
        return sign | form.infinity if form.is_infinite(a) else sign
    if not form.value(b):
        return form.nan if not form.value(a) else sign | form.infinity
    return form.rounded(form.value(a) / form.value(b), mode, sign)


def sqrt(form: Format, a: int, mode: str = "rn") -> int:
    if form.is_nan(a) or (a & form.sign and a != form.sign):
        return form.nan
    if form.is_infinite(a) or not form.value(a):
        return a
    # So many digits that what is left off only says that something is left off.
    shift = 4 * form.bits + 2 * form.bias
    scaled = form.value(a) * Fraction(4) ** shift
    root = math.isqrt(math.floor(scaled))
    exact = root * root == scaled
    return form.rounded(Fraction(2 * root + (not exact), 2) / Fraction(2) ** shift, mode)


def extreme(form: Format, a: int, b: int, largest: bool, nan: bool) -> int:
    if form.is_nan(a) or form.is_nan(b):
        if nan or (form.is_nan(a) and form.is_nan(b)):
            return form.nan
        return b if form.is_nan(a) else a

    def place(bits: int) -> int:  # -0 before +0
        return -(bits & ~form.sign) - 1 if bits & form.sign else bits

    return (max if largest else min)((a, b), key=place)

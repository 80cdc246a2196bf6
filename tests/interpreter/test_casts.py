"""Casts between all dtypes, and the rounding of 16-bit floats."""

import math
from fractions import Fraction

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_operation import compute
from oracles import COMPUTED, FLOATS, INTEGERS, numbers, same

from hal_core.dtypes import bfloat16, float16, float32

HALVES = (float16, bfloat16)


def check_cast(source, target, values):
    rows = [(value,) for value in values]
    for value, got in zip(values, compute("CAST", [source], target, rows), strict=True):
        expected = oracles.cast(value, source, target)
        assert same(got, expected), f"{target}({value!r}): {got!r}, not {expected!r}"


@pytest.mark.parametrize("target", COMPUTED, ids=repr)
@pytest.mark.parametrize("source", COMPUTED, ids=repr)
def test_cast(source, target):
    check_cast(source, target, numbers(source))


@pytest.mark.parametrize("target", INTEGERS, ids=repr)
@pytest.mark.parametrize("source", FLOATS, ids=repr)
def test_saturation_at_the_very_limit(source, target):
    """Return the numbers next to both limits, on both sides."""
    kind = source.to_numpy().type
    limits = [kind(target.min), kind(target.max)]
    near = [np.nextafter(limit, kind(end)) for limit in limits for end in (-np.inf, np.inf)]
    check_cast(source, target, [float(value) for value in (*limits, *near)])


def ties(dtype):
    """Return numbers of `dtype`, the middle to the next one, and both float32 next to that."""
    made = []
    for pattern in range(1, 0x8000, 7):
        before, low = (_value(bits, dtype) for bits in (pattern - 1, pattern))
        if math.isfinite(low):
            half = np.float32(low + (low - before) / 2)
            beside = (np.nextafter(half, np.float32(end)) for end in (-math.inf, math.inf))
            made += [low, *map(float, (half, *beside))]
    return [*made, *(-value for value in made)]


def _value(pattern, dtype):
    bits = np.array([pattern], np.uint16)
    return float(bits.view(dtype.to_numpy())[0])


@pytest.mark.parametrize("dtype", HALVES, ids=repr)
def test_half_floats_round_half_to_even(dtype):
    check_cast(float32, dtype, ties(dtype))
    check_cast(float32, dtype, numbers(float32))


@pytest.mark.parametrize("dtype", HALVES, ids=repr)
@given(values=st.lists(st.floats(width=32), min_size=1))
def test_any_float32_to_half(dtype, values):
    check_cast(float32, dtype, values)


@pytest.mark.parametrize("dtype", HALVES, ids=repr)
def test_every_half_float_is_what_its_bits_say(dtype):
    patterns = np.arange(1 << 16, dtype=np.uint16)
    rows = [(value,) for value in patterns.view(dtype.to_numpy())]
    significand, least, _ = oracles.FORMATS[dtype.name]
    for pattern, got in enumerate(compute("CAST", [dtype], float32, rows)):
        sign, exponent, digits = _fields(pattern, significand)
        if exponent == (1 << 16 - significand) - 1:
            assert math.isnan(got) if digits else got == sign * math.inf
            continue
        unit = Fraction(2) ** (least + max(exponent, 1) - significand)
        exact = (digits + (bool(exponent) << significand - 1)) * unit
        assert same(got, math.copysign(float(exact), sign))


def _fields(pattern, significand):
    digits = pattern & ((1 << significand - 1) - 1)
    exponent = (pattern & 0x7FFF) >> significand - 1
    return -1 if pattern >> 15 else 1, exponent, digits


PAIRS = [
    (source, target)
    for source in (*INTEGERS, *FLOATS)
    for target in (*INTEGERS, *FLOATS)
    if source.itemsize == target.itemsize
]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=repr)
def test_bitcast(source, target):
    values = [value for value in numbers(source) if value == value]  # a NaN has many
    rows = [(value,) for value in values]
    for value, got in zip(values, compute("BITCAST", [source], target, rows), strict=True):
        assert same(got, oracles.bits(value, source, target))

"""Numbers by their bits: BITCAST, and the 16-bit floats, every one of them both ways."""

import functools

import numpy as np
import pytest
from builder import Builder
from slices import usual

import hal_core as hal
from hal_core.dtypes import DTYPES, float64

HALVES = [DTYPES["float16"], DTYPES["bfloat16"]]


def is_nan16(bits, dtype):
    infinity = 0x7C00 if dtype is DTYPES["float16"] else 0x7F80
    return np.asarray((bits & 0x7FFF) > infinity)


def value_of(bits, dtype):
    """What 16 bits mean, by the definition of the format, in float64: sign, exponent, fraction."""
    digits = 10 if dtype is DTYPES["float16"] else 7
    bias = 2 ** (14 - digits) - 1
    exponent = (bits.astype(np.int64) & 0x7FFF) >> digits
    fraction = (bits & (2**digits - 1)).astype(np.float64) / 2**digits
    scale = np.exp2(np.maximum(exponent, 1) - bias)
    value = np.where(exponent == 0, fraction, 1 + fraction) * scale
    value[exponent == 2 * bias + 1] = np.inf
    value[is_nan16(bits, dtype)] = np.nan
    return np.where(bits & 0x8000, -value, value)


def nearest(x, dtype):
    """The bits of the nearest 16-bit float, of two the one with an even last bit.

    Found among all of them; one step beyond the largest is infinity.
    """
    infinity = 0x7C00 if dtype is DTYPES["float16"] else 0x7F80
    values = value_of(np.arange(infinity + 1, dtype=np.uint16), dtype)
    values[-1] = 2 * values[-2] - values[-3]
    size = np.abs(x.astype(np.float64))
    above = np.clip(np.searchsorted(values, size), 1, infinity)
    low, high = size - values[above - 1], values[above] - size
    up = (high < low) | ((high == low) & (above % 2 == 0)) | (size > values[-1])
    bits = np.where(up, above, above - 1).astype(np.uint16)
    return np.where(np.signbit(x), bits | 0x8000, bits).astype(np.uint16)


def test_the_oracle_is_numpys_float16():
    every = np.arange(65536, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(
            value_of(every, HALVES[0]), every.view(np.float16).astype(np.float64)
        )
    x = near_ties(HALVES[0])
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).view(np.uint16)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(nearest(x[number], HALVES[0]), expected[number])


def near_ties(dtype):
    """Every 16-bit number, the middle to the next, and the float32 on either side of both."""
    infinity = 0x7C00 if dtype is DTYPES["float16"] else 0x7F80
    numbers = value_of(np.arange(infinity, dtype=np.uint16), dtype)
    step = np.append(np.diff(numbers), numbers[-1] - numbers[-2])
    with np.errstate(over="ignore"):
        centres = np.concatenate([numbers, numbers + step / 2]).astype(np.float32)
    around = [
        centres, np.nextafter(centres, np.float32(0)), np.nextafter(centres, np.float32(np.inf)),
    ]  # fmt: skip
    special = np.array([np.inf, np.nan, 1e-45, 3.4028235e38, 65519.996, 65520], np.float32)
    both = np.concatenate([*around, special])
    return np.concatenate([both, -both])


WIDE = [DTYPES[name] for name in ("int32", "uint32", "int64", "uint64", "float64")]


@functools.cache
def near_ties_of(source, dtype):
    """Numbers of `source` at and next to the middles, too near for float32 to tell."""
    with np.errstate(all="ignore"):
        ties = near_ties(dtype).astype(np.float64)
    if source is float64:
        beside = [np.nextafter(ties, end) for end in (-np.inf, np.inf)]
        return np.concatenate([ties, *beside, [2.0**-1074, 1e308, -1e308]])
    whole = ties[(ties == np.rint(ties)) & (ties >= source.min) & (ties < float(source.max))]
    exact = {int(tie) + step for tie in whole for step in (-1, 0, 1)}
    exact |= {int(source.max), int(source.max) - 1, int(source.min), int(source.min) + 1}
    held = sorted(value for value in exact if source.min <= value <= source.max)
    return np.array(held, source.to_numpy())


def nearest_of(x, dtype):
    """The bits of the nearest 16-bit float to each number of any dtype."""
    if x.dtype.kind == "f":
        return nearest(x, dtype)
    # A float64 does not hold all integers of 64 bits; its last bit says that digits are lost.
    size = np.where(x < 0, -x, x).view(np.uint64) if x.itemsize == 8 else np.abs(x.astype("i8"))
    wide = size.astype(np.uint64)
    odd = np.where(wide >> np.uint64(53), (wide & ~np.uint64(2047)) | np.uint64(2048), wide)
    odd = np.where(wide & np.uint64(2047), odd, wide)
    return nearest(np.copysign(odd.astype(np.float64), np.where(x < 0, -1.0, 1.0)), dtype)


def rounding(source, target):
    @hal.kernel
    def rounded(y: hal.Ptr[target], x: hal.ConstPtr[source], n: hal.int32):
        i = hal.global_idx(0)
        if i < n:
            y[i] = target(x[i])

    return rounded.lower()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("source", usual(WIDE, "int32", "uint64", "float64"), ids=str)
def test_a_cast_to_16_bits_rounds_once(toolchain, source, dtype):
    """By way of the nearest float32, 1 + 2**-11 + 2**-40 would become 1.0."""
    x = near_ties_of(source, dtype)
    got = np.zeros(len(x), np.uint16)
    given = {"y": got, "x": x, "n": len(x)}
    toolchain.run(rounding(source, dtype), given, grid=(-(-len(x) // 256), 1, 1), block=(256, 1, 1))
    number = x == x
    assert is_nan16(got[~number], dtype).all()
    np.testing.assert_array_equal(got[number], nearest_of(x[number], dtype))


def pairs():
    numbers = [dtype for dtype in DTYPES.values() if dtype.kind != "b"]
    return [(a, b) for a in numbers for b in numbers if a.itemsize == b.itemsize]


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_bitcast_keeps_the_bits(toolchain, itemsize):
    both = [(a, b) for a, b in pairs() if a.itemsize == itemsize]
    names = {dtype.name for pair in both for dtype in pair}
    outputs = ", ".join(f"r{number}: {target.name}*" for number, (_, target) in enumerate(both))
    inputs = ", ".join(f"x_{name}: const {name}*" for name in sorted(names))
    b = Builder("bits", f"{outputs}, {inputs}")
    i = b.index()
    for number, (source, target) in enumerate(both):
        b.store(f"r{number}", i, b.bitcast(b.load(f"x_{source.name}", i), target))
    raw = np.random.default_rng(5).integers(0, 256, 64 * itemsize).astype(np.uint8)
    got = {f"r{number}": np.zeros(64, target.to_numpy()) for number, (_, target) in enumerate(both)}
    given = {f"x_{name}": raw.view(DTYPES[name].to_numpy()) for name in names}
    toolchain.run(b.kernel(), {**got, **given}, (64, 1, 1))
    for number, pair in enumerate(both):
        np.testing.assert_array_equal(got[f"r{number}"].view(np.uint8), raw, err_msg=str(pair))

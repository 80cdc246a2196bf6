"""Numbers by their bits: BITCAST, and casts of wide numbers to 16-bit floats."""

import functools
import math

import numpy as np
import pytest
from builder import Builder
from slices import usual

import hal_core as hal
from hal_core.dtypes import DTYPES, float64
from hal_testing.conformance.halves import HALVES, hard_to_round

WIDE = [DTYPES[name] for name in ("int32", "uint32", "int64", "uint64", "float64")]


@functools.cache
def near_ties_of(source, half):
    """Numbers of `source` at and next to the middles, too near for float32 to tell."""
    with np.errstate(invalid="ignore"):
        ties = hard_to_round(half).astype(np.float64)
    if source is float64:
        beside = [np.nextafter(ties, end) for end in (-np.inf, np.inf)]
        return np.concatenate([ties, *beside, [2.0**-1074, 1e308, -1e308]])
    whole = ties[(ties == np.rint(ties)) & (ties >= source.min) & (ties < float(source.max))]
    exact = {int(tie) + step for tie in whole for step in (-1, 0, 1)}
    exact |= {int(source.max), int(source.max) - 1, int(source.min), int(source.min) + 1}
    held = sorted(value for value in exact if source.min <= value <= source.max)
    return np.array(held, source.to_numpy())


def of_53_bits(value):
    """A number that a float64 holds and that rounds alike: its last bit says that bits are lost."""
    size = abs(value)
    lost = max(size.bit_length() - 53, 0) if isinstance(value, int) else 0
    size = (size >> lost | (size % (1 << lost) != 0)) << lost if lost else size
    return math.copysign(size, value)


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
    half = HALVES[dtype]
    x = near_ties_of(source, half)
    got = np.zeros(len(x), np.uint16)
    given = {"y": got, "x": x, "n": len(x)}
    toolchain.run(rounding(source, dtype), given, grid=(-(-len(x) // 256), 1, 1), block=(256, 1, 1))
    number = x == x
    assert (got[~number] & 0x7FFF > half.infinity).all()
    assert got[number].tolist() == [half.rounded(of_53_bits(one)) for one in x[number].tolist()]


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

"""Casts between all dtypes; the kit has those of 16-bit floats."""

import numpy as np
import oracles
import pytest
from one_operation import compute
from oracles import COMPUTED, FLOATS, INTEGERS, numbers, same


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

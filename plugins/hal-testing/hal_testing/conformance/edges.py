"""Numbers at which arithmetic and casts tend to fail, and the comparison of results."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import hal_core as hal
from hal_kernel.interpreter.casts import stored_as

Array = npt.NDArray[Any]
Tolerance = int | Array  # units in the last place, one for all or one for each element

# Exponents of the powers of two at which an integer type ends, or a float type skips integers.
_POWERS = (7, 8, 15, 16, 24, 31, 32, 53, 63, 64)
_PLAIN = (0.0, 1.0, 0.1, 0.5, 1.5, 2.5, 3.0, 7.5, 100.25, 1e10, 1e19, 1e20)


def integers(dtype: hal.DType) -> Array:
    """Return small integers and the limits of every width, as far as `dtype` holds them."""
    near = {base + step for power in _POWERS for base in (1 << power,) for step in (-1, 0, 1)}
    wanted = {0, 1, 2, 3, 5, 7, 10, 33, 100} | near | {int(dtype.min), int(dtype.max)}
    both = sorted({sign * value for value in wanted for sign in (1, -1)})
    return np.array([v for v in both if dtype.min <= v <= dtype.max], stored_as(dtype))


def floats(dtype: hal.DType) -> Array:
    """Return zeros, halves, large numbers, infinities, NaN; no subnormals, which may be flushed."""
    wanted = [*_PLAIN, *((1e150, 1e200) if dtype is hal.float64 else ()), np.inf]
    return np.array([*wanted, *(-value for value in wanted), np.nan], stored_as(dtype))


def around_integers(dtype: hal.DType) -> Array:
    """Return floats next to the limits of integers of any width, and next to where they round."""
    with np.errstate(all="ignore"):
        powers = np.array([2.0**power for power in _POWERS], stored_as(dtype))
        one = powers.dtype.type(1)
        near = np.concatenate(
            [
                powers,
                powers - one,
                powers + one,
                np.nextafter(powers, 0),
                np.nextafter(powers, np.inf),
            ]
        )
        return np.concatenate([near, -near, floats(dtype)])


def numbers(dtype: hal.DType) -> Array:
    """Return the numbers to try for a dtype; for a 16-bit float, all its 65536 patterns."""
    if dtype.itemsize == 2 and dtype.is_float:
        return np.arange(1 << 16, dtype=np.uint16).view(stored_as(dtype))
    if dtype is hal.bool_:
        return np.array([False, True])
    return around_integers(dtype) if dtype.is_float else integers(dtype)


def operands(dtype: hal.DType) -> Array:
    return floats(dtype) if dtype.is_float else numbers(dtype)


def pairs(values: Array) -> tuple[Array, Array]:
    """Return two arrays that pair every value with every value."""
    left, right = np.meshgrid(values, values)
    return left.reshape(-1).copy(), right.reshape(-1).copy()


def is_right(got: Array, expected: Array, dtype: hal.DType, ulps: Tolerance = 0) -> Array:
    """Return which elements are right: equal bits, NaN in both, or at most `ulps` units apart."""
    bits = np.dtype(f"u{dtype.itemsize}")
    same: Array = got.view(bits) == expected.view(bits)
    if not dtype.is_float:
        return same
    if dtype is hal.bfloat16:
        # numpy has no bfloat16: its bits are the upper half of a float32.
        wide = [array.astype(np.uint32) << np.uint32(16) for array in (got, expected)]
        both: Array = np.isnan(wide[0].view("f4")) & np.isnan(wide[1].view("f4"))
        return same | both
    with np.errstate(all="ignore"):
        # The unit of the least normal number serves all subnormals, which a device may flush.
        unit = np.spacing(np.maximum(np.abs(expected), np.finfo(expected.dtype).tiny))
        near: Array = (np.abs(got - expected) <= ulps * unit) & (np.asarray(ulps) > 0)
    result: Array = same | near | (np.isnan(got) & np.isnan(expected))
    return result

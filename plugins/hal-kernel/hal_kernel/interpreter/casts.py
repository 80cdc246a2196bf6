"""Cast between all dtypes, 16-bit floats included."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hal_core.dtypes import DType, any_, bfloat16

Array = npt.NDArray[Any]


def stored_as(dtype: DType) -> np.dtype[Any]:
    """Return the numpy dtype of a value; bfloat16, which numpy lacks, is its 16 bits."""
    if dtype is any_:
        return np.dtype(np.uint8)
    return np.dtype(np.uint16) if dtype is bfloat16 else dtype.to_numpy()


def cast(value: Array, source: DType, target: DType) -> Array:
    """Convert a value: integers wrap, floats round half to even, and are truncated to integers.

    A float outside of an integer's range becomes the nearest limit, and a NaN becomes 0. A bool is
    the value of `x != 0`, so a NaN is true.
    """
    if source is bfloat16:
        value = (value.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if target is bfloat16:  # the upper half of a float32
        bits = value.view(np.uint32)
        upper = bits >> np.uint32(16)
        # Half to even: add half of the last bit, minus the lowest bit if the last bit is 0.
        rounded = (bits + np.uint32(0x7FFF) + (upper & np.uint32(1))) >> np.uint32(16)
        # A NaN whose bits are all in the lower half would become an infinity.
        return np.where(np.isnan(value), upper | np.uint32(0x40), rounded).astype(np.uint16)
    dtype = stored_as(target)
    if target.kind == "b" or not (source.is_float and target.is_integer):
        return value.astype(dtype)
    whole = np.trunc(value.astype(np.float64))
    small, large = whole < target.min, whole >= float(target.max + 1)
    inside = np.where(small | large | np.isnan(whole), 0.0, whole).astype(dtype)
    limits = (dtype.type(target.min), dtype.type(target.max))
    return np.where(small, limits[0], np.where(large, limits[1], inside))


def bitcast(value: Array, source: DType, target: DType) -> Array:
    """Return the same bits as a value of another dtype."""
    return value.view(stored_as(target))

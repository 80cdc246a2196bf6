"""Kernels that the chapters launch."""

from __future__ import annotations

from functools import cache

import hal_core as hal
from hal_core.lang import KernelFunction


@cache
def copier(dtype: hal.DType) -> KernelFunction:
    """y[i] = x[i], of any dtype."""

    @hal.kernel
    def copies(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype], n: hal.int32) -> None:  # type: ignore[valid-type]
        i = hal.global_idx(0)
        if i < n:
            y[i] = x[i]

    return copies


@hal.kernel
def count_up(y: hal.Ptr[hal.int32], start: hal.int32, n: hal.int32) -> None:
    """y[i] = start + i."""
    i = hal.global_idx(0)
    if i < n:
        y[i] = start + i


@hal.kernel
def add_one(y: hal.Ptr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + 1


@hal.kernel
def slowly(y: hal.Ptr[hal.int32], turns: hal.int32, n: hal.int32) -> None:
    """y[i] = turns, after that many steps which none can leave out."""
    i = hal.global_idx(0)
    if i < n:
        y[i] = 0
        for _ in range(turns):
            y[i] = y[i] + 1

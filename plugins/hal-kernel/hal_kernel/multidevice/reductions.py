"""Kernels that reduce an axis."""

# The dtypes in annotations are variables here.
# mypy: disable-error-code="valid-type"

from __future__ import annotations

from functools import cache
from math import inf
from typing import TYPE_CHECKING

import hal_core as hal

if TYPE_CHECKING:
    from hal_core.buffer import Buffer
    from hal_core.dtypes import DType
    from hal_core.queue import Queue
    from hal_core.source import Writable

OPERATIONS = ("sum", "prod", "min", "max")


def reduce_axis(
    operation: str, queue: Queue, y: Buffer, x: Buffer, count: int, inner: int, is_first: bool
) -> None:
    """Queue the reduction of the middle axis of x, (outer, count, inner) elements, into y.

    `is_first` says that no elements stand before these along the axis.
    """
    program = queue.device.compile(_reduction(operation, y.dtype))
    program(y, x, vals=(y.size, count, inner, is_first), threads=y.size, queue=queue)


@cache
def _reduction(operation: str, dtype: DType) -> Writable:
    """Make a kernel that reduces the middle axis of (outer, count, inner) elements."""
    adds, multiplies, is_least = (operation == name for name in ("sum", "prod", "min"))
    may_be_nan = dtype.is_float and operation in ("min", "max")
    limit = inf if is_least else -inf

    @hal.kernel
    def combine(
        y: hal.Ptr[dtype], x: hal.ConstPtr[dtype], size: hal.int32, count: hal.int32,
        inner: hal.int32, is_first: hal.bool_,
    ) -> None:  # fmt: skip
        i = hal.global_idx(0)
        if i < size:
            start = i // inner * count * inner + i % inner
            total = x[start]
            # `min` and `max` keep a NaN that is their first argument: here that of the whole axis.
            if may_be_nan and not is_first and hal.isnan(total):
                total = dtype(limit)
            for k in range(1, count):
                value = x[start + k * inner]
                if adds:
                    total = total + value
                elif multiplies:
                    total = total * value
                elif is_least:
                    total = min(total, value)
                else:
                    total = max(total, value)
            y[i] = total

    return combine

"""Kernels that reduce an axis."""

# The dtypes in annotations are variables here.
# mypy: disable-error-code="valid-type"

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from hal_core.dtypes import DType, int32
from hal_core.lang import KernelFunction, global_idx, kernel
from hal_core.lang.pointers import ConstPtr, Ptr

if TYPE_CHECKING:
    from hal_core.buffer import Buffer
    from hal_core.queue import Queue

OPERATIONS = ("sum", "prod", "min", "max")


def reduce_axis(operation: str, queue: Queue, y: Buffer, x: Buffer, count: int, inner: int) -> None:
    """Queue the reduction of the middle axis of x, (outer, count, inner) elements, into y."""
    program = queue.device.compile(_reduction(operation, y.dtype))
    program(y, x, vals=(y.size, count, inner), threads=y.size, queue=queue)


@cache
def _reduction(operation: str, dtype: DType) -> KernelFunction:
    """Make a kernel that reduces the middle axis of (outer, count, inner) elements."""
    adds, multiplies, is_least = (operation == name for name in ("sum", "prod", "min"))

    @kernel
    def combine(y: Ptr[dtype], x: ConstPtr[dtype], size: int32, count: int32, inner: int32) -> None:
        i = global_idx(0)
        if i < size:
            start = i // inner * count * inner + i % inner
            total = x[start]
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

"""Keys that a launch compares by identity in the place of device, dtype and liveness."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hal_core.dtypes import DType


class BufferKey:
    """Stands for (device, dtype, aligned): an allocated buffer carries it, a program expects it.

    One identity test at a launch covers all three, and that the buffer is alive: freeing takes
    the key away. A view is aligned if the device's `view_alignment` divides its offset; `Source`
    kernels take no other.
    """

    __slots__ = ("aligned", "device", "dtype")

    def __init__(self, device: str, dtype: DType, aligned: bool) -> None:
        self.device, self.dtype, self.aligned = device, dtype, aligned

    def __repr__(self) -> str:
        return f"<BufferKey {self.device} {self.dtype.name}{'' if self.aligned else ' misaligned'}>"

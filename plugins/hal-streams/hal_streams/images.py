"""Images: arrays of the driver, and the objects through which kernels see them.

Arrays have no addresses. One copy of the driver goes between an array and a range of device memory;
data of the host, and patterns, are sent to such a range first.
"""

from __future__ import annotations

from typing import Any

from hal_core.allocator import Image
from hal_core.buffer import Buffer
from hal_core.device.base import Compiled
from hal_core.dtypes import uint8


class Array:
    """The memory of an image: the opaque of its buffer."""

    __slots__ = ("extent", "handle", "pixel_nbytes", "surface", "texture")

    def __init__(self, image: Image, handle: Any, texture: int, surface: int) -> None:
        height, depth = image.height or 1, image.depth or 1
        row_nbytes = image.nbytes // (height * depth)
        self.extent = row_nbytes, height, depth  # a row's bytes, and how many there are
        self.pixel_nbytes = row_nbytes // image.width
        self.handle, self.texture, self.surface = handle, texture, surface


def is_direct(dest: Any, src: Any, nbytes: int) -> bool:
    """Tell whether one copy of the driver does it: between images of one shape, an image and a
    range of memory, or ranges that do not overlap.

    Source: cuMemcpyAtoA, whose arrays have pixels of one size.
    """
    if isinstance(dest, int) and isinstance(src, int):
        return abs(dest - src) >= nbytes
    arrays = [one for one in (dest, src) if isinstance(one, Array)]
    return len({(one.extent, one.pixel_nbytes) for one in arrays}) == 1 and dest is not src


def linear(device: Compiled, nbytes: int) -> Buffer:
    """Return memory on the device that the data of an image passes through."""
    return Buffer(device, nbytes, uint8).allocate()

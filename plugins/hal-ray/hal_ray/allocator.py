"""Memory of a device on a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hal_core.allocator import LRUAllocator
from hal_ray import driver

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_core.device.base import Compiled
    from hal_ray.device import RayDevice
    from hal_ray.host import Place

_INLINE_NBYTES = 32 << 10  # smaller copies travel inside the message, larger ones beside it
_PART_NBYTES = 256 << 20  # of a copy, or a small object store could not hold it


class Memory:
    """A block or a part of one: a handle that the actor knows, an offset and a length in bytes."""

    __slots__ = ("place",)

    def __init__(self, handle: int, offset: int, nbytes: int) -> None:
        self.place: Place = handle, offset, nbytes

    def part(self, offset: int, nbytes: int) -> Memory:
        """Return a part, which has the same handle."""
        return Memory(self.place[0], self.place[1] + offset, nbytes)


class RayAllocator(LRUAllocator[Memory]):
    """Memory of the real device, by handles. The cache of freed blocks is on this side.

    Order: copies in, fills and copies between devices travel with other commands; the bytes of a
    large copy are put into the object store of this node before it returns.
    """

    device: RayDevice

    def _alloc(self, nbytes: int, options: BufferSpec) -> Memory:
        handle = next(self.device.numbers)
        seconds = driver.SECONDS.read()
        self.device.connection.ask("alloc", handle, nbytes, options.zero, seconds=seconds)
        return Memory(handle, 0, nbytes)

    def _free(self, opaque: Memory, nbytes: int, options: BufferSpec) -> None:
        self.device.connection.add_later("free", opaque.place[0])

    def _offset(self, opaque: Memory, nbytes: int, offset: int) -> Memory:
        return opaque.part(offset, nbytes)

    def _copyin(self, dest: Memory, src: memoryview) -> None:
        connection = self.device.connection
        if src.nbytes <= _INLINE_NBYTES:
            part = dest.part(0, src.nbytes)
            connection.add("write", part.place, bytes(src))
            return
        for start in range(0, src.nbytes, _PART_NBYTES):
            data = np.frombuffer(src[start : start + _PART_NBYTES], np.uint8)
            connection.add("fetch", dest.part(start, data.nbytes).place, connection.put(data))

    def _copyout(self, dest: memoryview, src: Memory) -> None:
        for start in range(0, dest.nbytes, _PART_NBYTES):
            into = dest[start : start + _PART_NBYTES]
            data = self.device.connection.ask("read", src.part(start, into.nbytes).place)
            into[:] = memoryview(data).cast("B")

    def _transfer(self, dest: Memory, src: Any, nbytes: int, src_device: Compiled) -> bool:
        connection = self.device.connection
        if src_device is self.device:
            connection.add("copy", dest.part(0, nbytes).place, src.part(0, nbytes).place)
            return True
        if type(src_device) is not type(self.device):
            return False
        there = src_device.connection
        for start in range(0, nbytes, _PART_NBYTES):
            length = min(_PART_NBYTES, nbytes - start)
            given = there.ask_later("give", src.part(start, length).place)
            connection.add("take", dest.part(start, length).place, [given])
        return True

    def _fill(self, dest: Memory, nbytes: int, pattern: bytes) -> None:
        self.device.connection.add("fill", dest.part(0, nbytes).place, pattern)

    def _place(self, opaque: Memory) -> tuple[object, int]:
        handle, offset, _ = opaque.place
        return handle, offset

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


def part(place: Place, offset: int, nbytes: int) -> Place:
    """Return a part of a block, which has the same handle."""
    return place[0], place[1] + offset, nbytes


class RayAllocator(LRUAllocator["Place"]):
    """Memory of the real device, by handles. The cache of freed blocks is on this side.

    A device that checks kernels has blocks of exactly the size asked for, and no cache: it would
    take a rounded block for a larger buffer, and one that is used again for written.
    Order: copies in, fills and copies between devices travel with other commands; the bytes of a
    large copy are put into the object store of this node before it returns.
    """

    device: RayDevice

    def __init__(self, device: Compiled) -> None:
        super().__init__(device)
        self._is_checked = self.device.connection.ask("poison")
        if self._is_checked:
            self.cache_limit, self.poison = 0, False  # the node fills its own memory

    def _alloc(self, nbytes: int, options: BufferSpec) -> Place:
        handle = next(self.device.numbers)
        seconds = driver.SECONDS.read()
        try:
            self.device.connection.ask("alloc", handle, nbytes, options.zero, seconds=seconds)
        except BaseException:  # Ctrl-C, or no answer in time: it may be allocated there
            self.device.connection.add_later("free", handle)
            raise
        return handle, 0, nbytes

    def _free(self, opaque: Place, nbytes: int, options: BufferSpec) -> None:
        self.device.connection.add_later("free", opaque[0])

    def _offset(self, opaque: Place, nbytes: int, offset: int) -> Place:
        return part(opaque, offset, nbytes)

    def _copyin(self, dest: Place, src: memoryview) -> None:
        connection = self.device.connection
        if src.nbytes <= _INLINE_NBYTES:
            connection.add("write", part(dest, 0, src.nbytes), connection.carry(src))
            return
        for start in range(0, src.nbytes, _PART_NBYTES):
            data = np.frombuffer(src[start : start + _PART_NBYTES], np.uint8)
            connection.add("fetch", part(dest, start, data.nbytes), connection.put(data))

    def _copyout(self, dest: memoryview, src: Place) -> None:
        for start in range(0, dest.nbytes, _PART_NBYTES):
            into = dest[start : start + _PART_NBYTES]
            data = self.device.connection.ask("read", part(src, start, into.nbytes))
            into[:] = memoryview(data).cast("B")

    def _transfer(self, dest: Place, src: Any, nbytes: int, src_device: Compiled) -> bool:
        connection = self.device.connection
        if src_device is self.device:
            connection.add("copy", part(dest, 0, nbytes), part(src, 0, nbytes))
            return True
        if type(src_device) is not type(self.device):
            return False
        there = src_device.connection
        there.takers.add(connection)
        for start in range(0, nbytes, _PART_NBYTES):
            length = min(_PART_NBYTES, nbytes - start)
            connection.count(length)
            given = there.ask_later("give", part(src, start, length))
            connection.add("take", part(dest, start, length), [given])
        return True

    def _fill(self, dest: Place, nbytes: int, pattern: bytes) -> None:
        self.device.connection.add("fill", part(dest, 0, nbytes), pattern)

    def _place(self, opaque: Place) -> tuple[object, int]:
        handle, offset, _ = opaque
        return handle, offset

    def _fresh(self, nbytes: int, size: int, options: BufferSpec) -> Place:
        return super()._fresh(nbytes, nbytes if self._is_checked else size, options)

    def _held_by(self, opaque: Place, nbytes: int) -> int:
        return nbytes if self._is_checked else super()._held_by(opaque, nbytes)

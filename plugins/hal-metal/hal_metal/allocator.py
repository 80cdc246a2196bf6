"""Memory of a Metal device, which the host sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.allocator import LRUAllocator
from hal_core.errors import InvalidArgument
from hal_metal import driver

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_core.device.base import Compiled
    from hal_metal.device import MetalDevice

_METAL = 8  # DLPack's type of device


class Part:
    """An opaque: a part of an MTLBuffer. Two are equal only if they are one object.

    (To hash or compare an MTLBuffer sends a message.)
    """

    __slots__ = ("buffer", "host", "offset")

    def __init__(self, buffer: Any, offset: int, host: memoryview) -> None:
        self.buffer = buffer
        self.offset = offset
        self.host = host  # bytes from the offset on, as the host sees them


class MetalAllocator(LRUAllocator[Part]):
    """Memory of one GPU, in shared storage. An opaque is a `Part`: buffer and byte offset.

    `external_ptr` is the integer of an `id<MTLBuffer>` of this GPU: it is retained while the
    buffer lives and never freed.

    Order: the host's accesses wait for all queued work. Copies and fills on the device are queued
    where Metal's blits take them, whose offsets and sizes are multiples of 4; the host does others.
    """

    dlpack_handle = True
    honours = frozenset({"nolru", "zero", "host", "cpu_access", "external_ptr"})
    device: MetalDevice

    def __init__(self, device: MetalDevice) -> None:
        super().__init__(device)
        self.dlpack_device = _METAL, device.index
        buffer, host = device.nothing
        self.null = Part(buffer, 0, host[:0])

    def _alloc(self, nbytes: int, options: BufferSpec) -> Part:
        with driver.check("allocate", self.device.name):
            buffer, host = driver.allocate(self.device.hardware, nbytes)
        return Part(buffer, 0, host)

    def _free(self, opaque: Part, nbytes: int, options: BufferSpec) -> None:
        """Do nothing: the last reference releases it, and command buffers hold their own."""

    def _wrap(self, pointer: int, nbytes: int) -> Part:
        device = self.device
        with driver.check("external_ptr", device.name):
            known, _ = device.nothing
            buffer = driver.foreign_buffer(pointer, known)
            if buffer is None:
                problem, got = "no MTLBuffer lies at the address", hex(pointer)
            else:
                ours, visible, size = driver.place_in(buffer, device.hardware)
                if ours and visible and size >= nbytes:
                    return Part(buffer, 0, driver.bytes_of(buffer, nbytes))
                if not ours:
                    problem, got = "the MTLBuffer belongs to another GPU", hex(pointer)
                elif not visible:
                    problem, got = "the MTLBuffer has no shared storage", hex(pointer)
                else:
                    problem, got = "the MTLBuffer is too small", f"{size} bytes"
        raise InvalidArgument(
            "external_ptr", problem, got=got, limit=f"needs {nbytes} bytes", device=device.name,
            fix="Give objc.pyobjc_id(buffer) of an MTLBuffer of this GPU, in shared storage. "
            "Buffer.from_numpy copies memory of the host.",
        )  # fmt: skip

    def _offset(self, opaque: Part, nbytes: int, offset: int) -> Part:
        return Part(opaque.buffer, opaque.offset + offset, opaque.host[offset:])

    def _copyin(self, dest: Part, src: memoryview) -> None:
        self.device.wait_for(None)
        dest.host[: src.nbytes] = src

    def _copyout(self, dest: memoryview, src: Part) -> None:
        self.device.wait_for(None)
        dest[:] = src.host[: dest.nbytes]

    def _transfer(self, dest: Part, src: Any, nbytes: int, src_device: Compiled) -> Any:
        if src_device.family != self.device.family:
            return False
        if src_device is not self.device or not blit_copies(dest, src, nbytes):
            src_device._synchronize(None)
            self._copyin(dest, src.host[:nbytes])
            return True
        with driver.check("copy_from", self.device.name):
            return self.device.submit(
                "copy",
                lambda commands: driver.copy_between(
                    commands, dest.buffer, dest.offset, src.buffer, src.offset, nbytes
                ),
            )

    def _fill(self, dest: Part, nbytes: int, pattern: bytes) -> Any:
        if not blit_fills(dest, nbytes, pattern):
            self._copyin(dest, memoryview(pattern * (nbytes // len(pattern))))
            return None
        with driver.check("fill", self.device.name):
            return self.device.submit(
                "fill",
                lambda commands: driver.fill_range(
                    commands, dest.buffer, dest.offset, nbytes, pattern[0]
                ),
            )

    def _as_buffer(self, opaque: Part, nbytes: int) -> memoryview:
        return opaque.host[:nbytes]

    def _export(self, opaque: Part) -> tuple[int, int]:
        return driver.pointer_of(opaque.buffer), opaque.offset

    def _place(self, opaque: Part) -> tuple[object, int]:
        return driver.pointer_of(opaque.buffer), opaque.offset


def blit_copies(dest: Part, src: Part, nbytes: int) -> bool:
    """Tell whether Metal's blit does this copy: not between elements, and no overlap."""
    apart = dest.buffer is not src.buffer or abs(dest.offset - src.offset) >= nbytes
    return apart and not (dest.offset | src.offset | nbytes) & 3


def blit_fills(dest: Part, nbytes: int, pattern: bytes) -> bool:
    """Tell whether Metal's blit does this fill, which repeats one byte."""
    return not (dest.offset | nbytes) & 3 and pattern == pattern[:1] * len(pattern)

"""Memory of a Metal device, which the host sees, and images, which it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.allocator import LRUAllocator
from hal_core.errors import InvalidArgument, Unsupported
from hal_metal import driver, transfers
from hal_metal.images import make
from hal_metal.transfers import Part, Texture, blit_copies, blit_fills

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec, Image
    from hal_core.device.base import Compiled
    from hal_metal.device import MetalDevice

Opaque = Part | Texture

_METAL = 8  # DLPack's type of device


class MetalAllocator(LRUAllocator[Opaque]):
    """Memory of one GPU, in shared storage. An opaque is a `Part`: buffer and byte offset.

    That of an image is a `Texture`, in private storage, to and from which blits copy.

    `external_ptr` is the integer of an `id<MTLBuffer>` of this GPU: it is retained while the
    buffer lives and never freed.

    Order: the host's accesses wait for all queued work. Copies and fills on the device are queued
    where Metal's blits take them, whose offsets and sizes are multiples of 4; the host does others.
    """

    dlpack_handle = True
    honours = frozenset({"nolru", "zero", "host", "cpu_access", "external_ptr", "image"})
    device: MetalDevice

    def __init__(self, device: MetalDevice) -> None:
        super().__init__(device)
        self.dlpack_device = _METAL, device.index
        buffer, host = device.nothing
        self.null = Part(buffer, 0, host[:0])

    def _alloc(self, nbytes: int, options: BufferSpec) -> Opaque:
        with driver.check("allocate", self.device.name):
            if options.image is not None:
                return self._alloc_image(options, options.image)
            buffer, host = driver.allocate(self.device.hardware, nbytes)
        return Part(buffer, 0, host)

    def _free(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
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

    def _offset(self, opaque: Any, nbytes: int, offset: int) -> Part:
        return Part(opaque.buffer, opaque.offset + offset, opaque.host[offset:])

    def _copyin(self, dest: Opaque, src: memoryview) -> Any:
        if isinstance(dest, Texture):
            with driver.check("copyin", self.device.name):
                return self._queue_copy(dest, transfers.staged(self.device, src), src.nbytes)
        self.device.wait_for(None)
        dest.host[: src.nbytes] = src
        return None

    def _copyout(self, dest: memoryview, src: Opaque) -> Any:
        work = None
        if isinstance(src, Texture):
            with driver.check("copyout", self.device.name):
                between = transfers.between(self.device, dest.nbytes)
                work = self._queue_copy(between, src, dest.nbytes)
            src = between
        self.device.wait_for(None)
        dest[:] = src.host[: dest.nbytes]
        return work

    def _transfer(self, dest: Opaque, src: Any, nbytes: int, src_device: Compiled) -> Any:
        if src_device.family != self.device.family:
            return False
        by_gpu = src_device is self.device
        if isinstance(dest, Part) and isinstance(src, Part):
            by_gpu = by_gpu and blit_copies(dest, src, nbytes)
        if by_gpu:
            with driver.check("copy_from", self.device.name):
                return self._queue_copy(dest, src, nbytes)
        if isinstance(src, Texture):
            return False
        src_device._synchronize(None)
        self._copyin(dest, src.host[:nbytes])
        return True

    def _fill(self, dest: Opaque, nbytes: int, pattern: bytes) -> Any:
        device = self.device
        if isinstance(dest, Part) and not blit_fills(dest, nbytes, pattern):
            return self._copyin(dest, memoryview(pattern * (nbytes // len(pattern))))
        with driver.check("fill", device.name):
            return device.submit(
                "fill", lambda commands: transfers.fill(device, commands, dest, nbytes, pattern)
            )

    def _as_buffer(self, opaque: Any, nbytes: int) -> memoryview:
        found: memoryview = opaque.host[:nbytes]
        return found

    def _host_sees(self, options: BufferSpec) -> bool:
        return options.image is None

    def _export(self, opaque: Opaque) -> tuple[int, int]:
        return super()._export(opaque) if isinstance(opaque, Texture) else self._place(opaque)

    def _place(self, opaque: Opaque) -> tuple[int, int]:
        if isinstance(opaque, Texture):
            return driver.pointer_of(opaque.texture), 0
        return driver.pointer_of(opaque.buffer), opaque.offset

    def _queue_copy(self, dest: Opaque, src: Opaque, nbytes: int) -> driver.Work:
        """Queue a copy on the device. Raises: Refused."""
        device = self.device
        return device.submit(
            "copy", lambda commands: transfers.copy(device, commands, dest, src, nbytes)
        )

    def _alloc_image(self, options: BufferSpec, image: Image) -> Texture:
        if options.host or options.cpu_access:
            raise Unsupported(
                "allocate", "an image is memory of the device, not of the host", got=options,
                device=self.device.name, fix="Leave out host=True and cpu_access=True.",
            )  # fmt: skip
        return make(self.device, image)

"""Memory of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.allocator import LRUAllocator
from hal_testing.fake.chip import LOST, Block

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_core.device.base import Compiled
    from hal_testing.fake.device import FakeDevice


class FakeAllocator(LRUAllocator[Block]):
    """Memory of one device. An opaque is a `Block`: a handle and a byte offset.

    A view has the handle of its base. The host sees only memory that was allocated with
    `BufferSpec(host=True)`.
    """

    honours = frozenset({"nolru", "zero", "host"})  # fields of BufferSpec; others are refused
    device: FakeDevice

    def _alloc(self, nbytes: int, options: BufferSpec) -> Block:
        status, block = self.device.chip.alloc(nbytes)
        self.device.check("alloc", status)
        return block

    def _free(self, opaque: Block, nbytes: int, options: BufferSpec) -> None:
        status = self.device.chip.free(opaque)
        # A lost device has lost its memory too, and finalizers, which call this, must not raise.
        if status != LOST:
            self.device.check("free", status)

    def _offset(self, opaque: Block, nbytes: int, offset: int) -> Block:
        return opaque._replace(offset=opaque.offset + offset)

    def _host_sees(self, options: BufferSpec) -> bool:
        return options.host

    def _as_buffer(self, opaque: Block, nbytes: int) -> memoryview:
        status, memory = self.device.chip.map(opaque, nbytes)
        self.device.check("map", status)
        return memory

    def _copyin(self, dest: Block, src: memoryview) -> None:
        self.device.check("write", self.device.chip.write(dest, bytes(src)))

    def _copyout(self, dest: memoryview, src: Block) -> None:
        self.device.check("read", self.device.chip.read(dest, src))

    def _transfer(self, dest: Block, src: Any, nbytes: int, src_device: Compiled) -> bool:
        if src_device is not self.device:
            return False  # the core copies through the host
        self.device.check("copy", self.device.chip.copy(dest, src, nbytes))
        return True

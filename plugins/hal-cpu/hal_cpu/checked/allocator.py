"""The memory of the device under HAL_CHECK=1: blocks between inaccessible pages."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any

from hal_core.errors import DeviceFault
from hal_cpu import driver
from hal_cpu.allocator import CPUAllocator
from hal_cpu.checked.guarded_memory import Address, Block, Quarantine
from hal_cpu.checked.order import order, range_of

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_core.device.base import Compiled
    from hal_cpu.checked.device import CheckedDevice

log = logging.getLogger("hal_core")


class CheckedAllocator(CPUAllocator):
    """Blocks between inaccessible pages; a freed one is not used again.

    An opaque is an `Address`, which knows its block.
    """

    device: CheckedDevice
    null = Address(0, 0)
    host_ordered = False  # True lets copies bypass the record of written bytes

    def __init__(self, device: Compiled) -> None:
        super().__init__(device)
        self.poison = True  # HAL_CHECK was set when the device opened, and may be unset by now
        self._blocks: dict[int, Block] = {}
        self._quarantine = Quarantine()  # changes only while `_freeing` is held
        self._numbers = itertools.count(1)  # of blocks, for errors

    @property
    def cache_limit(self) -> int:
        """Always 0, even if it is set: a freed block stays inaccessible."""
        return 0

    @cache_limit.setter
    def cache_limit(self, nbytes: int) -> None:
        pass

    # -- blocks of exactly the size asked for: rounding would hide a write just after the end

    def _fresh(self, nbytes: int, size: int, options: BufferSpec) -> int:
        return super()._fresh(nbytes, nbytes, options)

    def _held_by(self, opaque: int, nbytes: int) -> int:
        return nbytes

    def _alloc(self, nbytes: int, options: BufferSpec) -> int:
        with driver.check("allocate", self.device.name):
            block = Block(nbytes, next(self._numbers), options.zero, self.poison)
        self._blocks[block.address] = block
        return Address(block.address, nbytes, block)

    def _initialise(self, opaque: int, nbytes: int, options: BufferSpec) -> None:
        """Do nothing: `Block` has filled itself, and a fill here would count as written."""

    def _free(self, opaque: int, nbytes: int, options: BufferSpec) -> None:
        block = self._blocks.pop(opaque)
        order.forget(opaque, nbytes)
        self._check_block(block, "free")
        self._quarantine.add(block)

    # -- writes beside blocks

    def find_damage(self) -> None:
        """Check the guard bytes of every block in use; a write there is a fault to raise."""
        # Registered as work in flight, as a launch is: memory that a finalizer or another thread
        # frees meanwhile stays accessible until the search has ended.
        with self._freeing, self.device.in_flight.using(*self._blocks):
            for block in list(self._blocks.values()):
                self._check_block(block, "wait")

    def _check_block(self, block: Block, operation: str) -> None:
        damage = None if block.damage_is_known else block.find_damage()
        if damage is None:
            return
        block.damage_is_known = True
        fault = DeviceFault(
            operation,
            f"a write {'after the end' if damage > 0 else 'before the beginning'} of {block}",
            got=damage,
            limit=f"limit 0 to {block.nbytes - 1}",
            device=self.device.name,
            fix="Look at code that has its address: a C kernel, or an array over the buffer.",
        )
        log.warning("%s", fault)
        self.device.faults.append(fault)

    def free_cache(self) -> None:
        """Release the reserved addresses of freed blocks, whose memory is given back already."""
        super().free_cache()
        with self._freeing:
            self._quarantine.shrink(0, 0)

    def block_near(self, address: int) -> tuple[Block | None, bool]:
        """Return the block next to a faulting address, and whether it was freed."""
        freed = self._quarantine.find(address)
        if freed is not None:
            return freed, True
        for block in list(self._blocks.values()):
            if block.low - driver.PAGE <= address < block.high + driver.PAGE:
                return block, False
        return None, False

    # -- the record of what is written

    def _wrap(self, pointer: int, nbytes: int) -> int:
        return Address(pointer, nbytes)

    def _offset(self, opaque: Any, nbytes: int, offset: int) -> int:
        address: Address = opaque
        return address.part(offset, nbytes)

    def _copyin(self, dest: Any, src: memoryview) -> None:
        written = dest, dest + src.nbytes, True
        self.device.check_order("copyin", written, range_of(src, False))
        super()._copyin(dest, src)
        dest.mark_written(src.nbytes)

    def _copyout(self, dest: memoryview, src: Any) -> None:
        read = src, src + dest.nbytes, False
        self.device.check_order("copyout", read, range_of(dest, True))
        super()._copyout(dest, src)

    def _transfer(self, dest: Any, src: Any, nbytes: int, src_device: Compiled) -> bool:
        if src_device is self.device:
            ranges = (dest, dest + nbytes, True), (src, src + nbytes, False)
            self.device.check_order("copy", *ranges)
        done = super()._transfer(dest, src, nbytes, src_device)
        if done:
            dest.copy_record(src, nbytes)
        return done

    def _fill(self, dest: Any, nbytes: int, pattern: bytes) -> None:
        self.device.check_order("fill", (dest, dest + nbytes, True))
        super()._fill(dest, nbytes, pattern)
        dest.mark_written(nbytes)

    def _as_buffer(self, opaque: Any, nbytes: int) -> memoryview:
        # The view's holder may write unseen at any time, so all bytes count as written.
        self.device.check_order("the host's view", (opaque, opaque + nbytes, False))
        opaque.mark_written(nbytes)
        return super()._as_buffer(opaque, nbytes)

"""The memory of the device under HAL_CHECK=1, which is watched."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any

from hal_core.errors import DeviceFault
from hal_cpu import driver
from hal_cpu.allocator import CPUAllocator
from hal_cpu.checked.guarded_memory import Block, Place, Quarantine

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_core.device import Compiled
    from hal_cpu.checked.device import CheckedDevice

log = logging.getLogger("hal_core")


class CheckedAllocator(CPUAllocator):
    """Blocks between inaccessible pages; a freed one is not used again.

    An opaque is a `Place`: an address that knows its block.
    """

    device: CheckedDevice
    null = Place(0, 0)
    host_ordered = False  # or copies would pass by the record of what is written

    def __init__(self, device: Compiled) -> None:
        super().__init__(device)
        self.poison = True  # whatever the environment says by now
        self._blocks: dict[int, Block] = {}
        self._quarantine = Quarantine()  # `_freeing` is held where it changes
        self._looks = 0  # that go on in the thread that holds `_freeing`, one within another
        self._unseen: list[Block] = []  # freed by a finalizer in the middle of a look
        self._numbers = itertools.count(1)
        self._told: set[int] = set()  # numbers of damaged blocks

    @property
    def cache_limit(self) -> int:
        """Always 0, whatever it is set to: a freed block stays inaccessible."""
        return 0

    @cache_limit.setter
    def cache_limit(self, nbytes: int) -> None:
        pass

    # -- blocks of the size that was asked for: behind a rounded one there is room

    def _fresh(self, nbytes: int, size: int, options: BufferSpec) -> int:
        return super()._fresh(nbytes, nbytes, options)

    def _drop(self, opaque: int, size: int, options: BufferSpec) -> None:
        super()._drop(opaque, self._blocks[opaque].nbytes, options)

    def _alloc(self, nbytes: int, options: BufferSpec) -> int:
        block = Block(nbytes, next(self._numbers), options.zero, self.poison)
        self._blocks[block.address] = block
        return Place(block.address, nbytes, block)

    def _initialise(self, opaque: int, nbytes: int, options: BufferSpec) -> None:
        """That was done, and a fill would count as written."""

    def _free(self, opaque: int, nbytes: int, options: BufferSpec) -> None:
        block = self._blocks.pop(opaque)
        self._look_at(block, "free")
        if self._looks:
            self._unseen.append(block)
        else:
            self._quarantine.add(block)

    def look(self) -> None:
        """For writes beside blocks that are in use: those stay accessible until it has ended."""
        with self._freeing:
            self._looks += 1
            try:
                for block in list(self._blocks.values()):
                    self._look_at(block, "wait")
            finally:
                self._looks -= 1
                while self._unseen and not self._looks:
                    self._quarantine.add(self._unseen.pop())

    def _look_at(self, block: Block, operation: str) -> None:
        damage = block.damage()
        if damage is not None and block.number not in self._told:
            self._told.add(block.number)
            self._report(operation, block, damage)

    def _report(self, operation: str, block: Block, damage: int) -> None:
        where = "behind the end" if damage > 0 else "before the beginning"
        fault = DeviceFault(
            operation,
            f"a write {where} of {block}",
            got=damage,
            limit=f"limit 0 to {block.nbytes - 1}",
            device=self.device.name,
            fix="Look at what was given its address: an array's consumer, or a C kernel.",
        )
        log.warning("%s", fault)
        self.device.faults.append(fault)

    def free_cache(self) -> None:
        """Release every freed block's addresses; the memory went back when it was freed."""
        super().free_cache()
        with self._freeing:
            self._quarantine.shrink(0, 0)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._held = self._current
        self._looks = 0  # the parent's thread that looked is not here

    def block_near(self, address: int) -> tuple[Block | None, bool]:
        """The block that an access to an inaccessible page missed, and whether it was freed."""
        freed = self._quarantine.find(address)
        if freed is not None:
            return freed, True
        for block in list(self._blocks.values()):
            if block.low - driver.PAGE <= address < block.high + driver.PAGE:
                return block, False
        return None, False

    # -- what is written

    def _wrap(self, pointer: int, nbytes: int) -> int:
        return Place(pointer, nbytes)

    def _offset(self, opaque: Any, nbytes: int, offset: int) -> int:
        place: Place = opaque
        return place.part(offset, nbytes)

    def _as_buffer(self, opaque: Any, nbytes: int) -> memoryview:
        """Whoever has it may write, and nobody sees it: from now on all of it counts as written."""
        opaque.mark(nbytes)
        return super()._as_buffer(opaque, nbytes)

    def _copyin(self, dest: Any, src: memoryview) -> None:
        super()._copyin(dest, src)
        dest.mark(src.nbytes)

    def _fill(self, dest: Any, nbytes: int, pattern: bytes) -> None:
        super()._fill(dest, nbytes, pattern)
        dest.mark(nbytes)

    def _transfer(self, dest: Any, src: Any, nbytes: int, src_device: Compiled) -> bool:
        done = super()._transfer(dest, src, nbytes, src_device)
        if done:
            dest.copy_record(src, nbytes)
        return done

"""Memory between inaccessible pages, with a record of what was written.

    | no access | 40 40 ... 40 | the block's bytes | 40 ... 40 | no access |
               low          address               end        high

The end of a block, rounded up to 64 bytes, touches an inaccessible page: an access after it is a
fault at once. The beginning is up to a page away from the other inaccessible page. The accessible
bytes around a block are its guard bytes: they hold a pattern, which a write there changes.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from hal_cpu import driver

Array = npt.NDArray[Any]

FRESH = 0xCB  # fills the bytes of a block that nothing has written
# Fills the guard bytes beside a block: a small float of any width, so that `y[n] += 1` changes it.
AROUND = 0x40
_ALIGNMENT = 64
_QUARANTINE_BLOCKS = 1024
_QUARANTINE_NBYTES = 1 << 32  # of address space: freed blocks take no memory


class Block:
    """A block of `nbytes` at `address`, in accessible memory from `low` to `high`."""

    __slots__ = (
        "address", "damage_is_known", "high", "low", "nbytes", "number", "user", "written",
    )  # fmt: skip

    def __init__(self, nbytes: int, number: int, zero: bool, poison: bool) -> None:
        """Map the block, with `zero` as written zeros, else as unwritten.

        `poison` fills unwritten bytes with FRESH. Raises: driver.Refused.
        """
        room = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        self.nbytes, self.number = nbytes, number
        self.user = ""  # the argument of the last launch that used it, for errors
        self.damage_is_known = False
        self.low = driver.map_guarded(room)
        self.high = self.low + driver.pages(room)
        self.address = self.high - room
        # One element per byte, 1 where it was written; None: all bytes were.
        self.written: Array | None = None if zero else np.zeros(nbytes, np.uint8)
        for start, stop in self.around:
            ctypes.memset(start, AROUND, stop - start)
        if poison and not zero:
            ctypes.memset(self.address, FRESH, nbytes)

    @property
    def end(self) -> int:
        return self.address + self.nbytes

    @property
    def around(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The ranges of guard bytes before the block and after it."""
        return (self.low, self.address), (self.end, self.high)

    def drop_full_record(self) -> None:
        """Drop the record if all of the block is written."""
        if self.written is not None and self.written.all():
            self.written = None

    def find_damage(self) -> int | None:
        """Return the offset of the first guard byte that was overwritten; None: none was."""
        for start, stop in self.around:
            found = np.frombuffer(driver.memory_at(start, stop - start), np.uint8) != AROUND
            if found.any():
                return start + int(found.argmax()) - self.address
        return None

    def __repr__(self) -> str:
        was = f", last {self.user}" if self.user else ""
        return f"block {self.number} of {self.nbytes} bytes{was}"


class Address(int):
    """The address of a buffer or view, with its number of bytes and its block.

    `block` is None for memory that another library owns: all of it counts as written.
    """

    block: Block | None
    nbytes: int

    def __new__(cls, address: int, nbytes: int, block: Block | None = None) -> Address:
        made = int.__new__(cls, address)
        made.nbytes, made.block = nbytes, block
        return made

    def part(self, offset: int, nbytes: int) -> Address:
        return Address(self + offset, nbytes, self.block)

    def mark_written(self, nbytes: int | None = None) -> None:
        """Record that the first `nbytes`, or all, were written."""
        record = self.record(1)
        if self.block is not None and record is not None:
            record[:nbytes] = 1
            self.block.drop_full_record()

    def record(self, itemsize: int) -> Array | None:
        """Return the record of written bytes as the interpreter takes it; None: all are written.

        It is a view of the block's record, as an integer for each element: a 1 in every byte that
        was written.
        """
        block = self.block
        if block is None or block.written is None:
            return None
        start = self - block.address
        return block.written[start : start + self.nbytes].view(f"u{itemsize}")

    def copy_record(self, source: Address, nbytes: int) -> None:
        """Copy the record too, after a copy: unwritten bytes of the source stay unwritten here."""
        known = source.part(0, nbytes).record(1)
        if known is None:
            self.mark_written(nbytes)
        elif self.block is not None:
            if self.block.written is None:
                self.block.written = np.ones(self.block.nbytes, np.uint8)
            start = self - self.block.address
            self.block.written[start : start + nbytes] = known
            self.block.drop_full_record()


class Quarantine:
    """Freed blocks, whose addresses stay reserved for a while: a late access is a fault.

    Concurrency: one thread at a time; `find` may be called by any.
    """

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque()  # the oldest first
        self._nbytes = 0

    def add(self, block: Block) -> None:
        block.written = None
        try:
            driver.retire_guarded(block.low, block.high - block.low)
        except driver.Refused:  # too many mappings: keep no addresses of this block
            driver.unmap_guarded(block.low, block.high - block.low)
            return
        self._blocks.append(block)
        self._nbytes += block.high - block.low
        self.shrink(_QUARANTINE_BLOCKS, _QUARANTINE_NBYTES)

    def shrink(self, blocks: int, nbytes: int) -> None:
        """Release the oldest blocks, until at most these numbers of blocks and bytes are left."""
        while len(self._blocks) > blocks or self._nbytes > nbytes:
            block = self._blocks.popleft()
            self._nbytes -= block.high - block.low
            driver.unmap_guarded(block.low, block.high - block.low)

    def find(self, address: int) -> Block | None:
        """Return the freed block that contained the address, None if none did."""
        return next((b for b in list(self._blocks) if b.low <= address < b.high), None)

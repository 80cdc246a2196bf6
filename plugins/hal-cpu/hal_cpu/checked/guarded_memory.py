"""Memory that is watched: between inaccessible pages, and with a record of what was written.

A block ends where an inaccessible page begins, but for the bytes that round it up to 64, and begins
up to a page behind another one. The bytes between hold a pattern, by which a write there shows.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from hal_core.errors import OutOfMemory
from hal_cpu import driver

Array = npt.NDArray[Any]

FRESH, AROUND = 0xCB, 0x5A  # what bytes hold that nobody has written: of the block, and beside it
_ALIGNMENT = 64
_QUARANTINE_BLOCKS = 1024
_QUARANTINE_NBYTES = 1 << 32  # of addresses; they take no memory


class Block:
    """`nbytes` at `address`, in accessible memory from `low` to `high`."""

    __slots__ = ("address", "called", "high", "low", "nbytes", "number", "written")

    def __init__(self, nbytes: int, number: int, zero: bool, poison: bool) -> None:
        """Zeros that count as written, or unknown: with `poison` full of FRESH, else untouched.

        Raises: OutOfMemory.
        """
        room = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        self.nbytes, self.number = nbytes, number
        self.called = ""  # what the last launch called it
        self.low = driver.map_guarded(room)
        self.high = self.low + driver.pages(room)
        self.address = self.high - room
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
        """What is accessible before and behind."""
        return (self.low, self.address), (self.end, self.high)

    def mark(self, start: int, nbytes: int) -> None:
        """Byte `start` and those behind are written."""
        if nbytes == self.nbytes:
            self.written = None
        elif self.written is not None:
            self.written[start : start + nbytes] = 1

    def settle(self) -> None:
        """Forget the record once all of the block is written."""
        if self.written is not None and self.written.all():
            self.written = None

    def damage(self) -> int | None:
        """How far from the block's first byte a byte is that has no business to be written."""
        for start, stop in self.around:
            found = np.frombuffer(driver.memory_at(start, stop - start), np.uint8) != AROUND
            if found.any():
                return start + int(found.argmax()) - self.address
        return None

    def __repr__(self) -> str:
        was = f", last {self.called}" if self.called else ""
        return f"block {self.number} of {self.nbytes} bytes{was}"


class Place(int):
    """An address, and how much a buffer or a view has there. `block` is None where the memory is
    the caller's: all of it counts as written."""

    block: Block | None
    nbytes: int

    def __new__(cls, address: int, nbytes: int, block: Block | None = None) -> Place:
        made = int.__new__(cls, address)
        made.nbytes, made.block = nbytes, block
        return made

    def part(self, offset: int, nbytes: int) -> Place:
        return Place(self + offset, nbytes, self.block)

    def mark(self, nbytes: int | None = None) -> None:
        """The first `nbytes`, or all, are written."""
        if self.block is not None:
            self.block.mark(self - self.block.address, self.nbytes if nbytes is None else nbytes)

    def record(self, itemsize: int) -> Array | None:
        """What is written, as the interpreter takes it: an integer an element, with a 1 in every
        byte. None: all. A change of it is a change of the block's."""
        block = self.block
        if block is None or block.written is None:
            return None
        start = self - block.address
        return block.written[start : start + self.nbytes].view(f"u{itemsize}")

    def copy_record(self, source: Place, nbytes: int) -> None:
        """After a copy: what was not written there is not written here."""
        known = source.part(0, nbytes).record(1)
        if known is None:
            self.mark(nbytes)
        elif self.block is not None:
            if self.block.written is None:
                self.block.written = np.ones(self.block.nbytes, np.uint8)
            start = self - self.block.address
            self.block.written[start : start + nbytes] = known
            self.block.settle()


class Quarantine:
    """Blocks that were freed, kept inaccessible for a while so that nothing else gets their
    addresses. Concurrency: one thread at a time, but for `find`; calls may nest."""

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque()
        self._nbytes = 0

    def add(self, block: Block) -> None:
        block.written = None
        try:
            driver.retire_guarded(block.low, block.high - block.low)
        except OutOfMemory:  # of mappings
            driver.unmap_guarded(block.low, block.high - block.low)
            return
        self._blocks.append(block)
        self._nbytes += block.high - block.low
        self.shrink(_QUARANTINE_BLOCKS, _QUARANTINE_NBYTES)

    def shrink(self, blocks: int, nbytes: int) -> None:
        """Let the oldest go until these are left."""
        while self._blocks and (len(self._blocks) > blocks or self._nbytes > nbytes):
            try:
                block = self._blocks.popleft()
            except IndexError:  # a finalizer was faster
                return
            self._nbytes -= block.high - block.low
            driver.unmap_guarded(block.low, block.high - block.low)

    def find(self, address: int) -> Block | None:
        """The block that lay there."""
        return next((b for b in list(self._blocks) if b.low <= address < b.high), None)

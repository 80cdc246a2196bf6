"""Work that runs without the GIL, and memory that was freed under it."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_cpu.allocator import CPUAllocator
    from hal_cpu.threads.pool import Run

Block = tuple["CPUAllocator", int, int, "BufferSpec"]  # of (address, nbytes, options)

_addresses = struct.Struct("@Q").iter_unpack
_pack = struct.Struct("@Q").pack


class Running:
    """The launches and long copies that run now. Memory that another thread frees under one is
    given back when that one ends, to whoever asks next; before, nobody gets it.

    Concurrency: no locks, as finalizers free; each step is one under the GIL.
    """

    def __init__(self) -> None:
        self.work: dict[int, bytes] = {}  # id of the arguments -> arguments, eight bytes each
        self._kept: deque[Block] = deque()

    def keep(self, *block: Any) -> bool:
        """Whether running work may use the block, which is then given back behind that work."""
        if not self._uses(*block):
            return False
        self._kept.append(block)
        if not self._uses(*block):  # it ended meanwhile, perhaps without seeing the block
            self._give_back()
        return True

    def _uses(self, allocator: CPUAllocator, start: int, nbytes: int, _: BufferSpec) -> bool:
        end = start + nbytes
        return any(
            start <= address < end
            for args in list(self.work.values())
            for (address,) in _addresses(args)
        )

    def end(self, args: bytes) -> None:
        self.work.pop(id(args), None)
        if self._kept:
            self._give_back()

    def _give_back(self) -> None:
        for _ in range(len(self._kept)):
            try:
                allocator, opaque, nbytes, options = self._kept.popleft()
            except IndexError:  # another thread was faster
                return
            allocator._give_back(opaque, nbytes, options)  # which asks again: others may use it too

    @contextmanager
    def using(self, *addresses: int) -> Iterator[None]:
        """Around a long copy."""
        args = b"".join(map(_pack, addresses))
        self.work[id(args)] = args
        try:
            yield
        finally:
            self.end(args)


class Noted:
    """A way to run launches that releases the GIL: it is known which run now."""

    __slots__ = ("_run", "_running")

    def __init__(self, run: Run, running: Running) -> None:
        self._run, self._running = run, running

    def __call__(self, args: bytes, launch: Any, first: Any, last: Any) -> None:
        running = self._running
        running.work[id(args)] = args
        try:
            self._run(args, launch, first, last)
        finally:
            running.end(args)

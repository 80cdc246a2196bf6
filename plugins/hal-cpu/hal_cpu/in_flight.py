"""Work that runs without the GIL, and memory that is freed while such work uses it.

thread 1: launch with y at 4096 ------------------------- ends; the block at 4096 is given back
thread 2:            y.deallocate(): deferred      alloc(): another block
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_cpu.allocator import CPUAllocator
    from hal_cpu.threads.pool import LaunchFunction

FreedBlock = tuple["CPUAllocator", int, int, "BufferSpec"]  # allocator, address, nbytes, options

_addresses = struct.Struct("@Q").iter_unpack
_pack = struct.Struct("@Q").pack


class InFlight:
    """The launches and long copies of one device that run now.

    Memory that one of them uses, and another thread frees, is given back when that work ends.
    Concurrency: no locks, as finalizers free memory at any moment; each change is one step under
    the GIL.
    """

    def __init__(self) -> None:
        # id of a launch's packed arguments -> the arguments, eight bytes each. A number among them
        # may look like an address; then a block waits in vain, which is harmless.
        self.work: dict[int, bytes] = {}
        self._freed: deque[FreedBlock] = deque()

    def defer(self, *block: Any) -> bool:
        """Keep a freed block that work in flight uses, to give it back later; False: none does."""
        if not self._uses(*block):
            return False
        self._freed.append(block)
        if not self._uses(*block):  # the work has ended since, perhaps without seeing the block
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
        """Forget the work, and give back blocks that were freed while it ran."""
        self.work.pop(id(args), None)
        if self._freed:
            self._give_back()

    def _give_back(self) -> None:
        for _ in range(len(self._freed)):
            try:
                allocator, opaque, nbytes, options = self._freed.popleft()
            except IndexError:  # another thread was faster
                return
            allocator._give_back(opaque, nbytes, options)  # or defers again, for other work

    @contextmanager
    def using(self, *addresses: int) -> Iterator[None]:
        """Count the block of the `with` statement as work on the memory at these addresses."""
        args = b"".join(map(_pack, addresses))
        self.work[id(args)] = args
        try:
            yield
        finally:
            self.end(args)


class TrackedLaunch:
    """A launch function that releases the GIL, and is in flight while it runs."""

    __slots__ = ("_in_flight", "_run")

    def __init__(self, run: LaunchFunction, in_flight: InFlight) -> None:
        self._run, self._in_flight = run, in_flight

    def __call__(self, args: bytes, launch: Any, first: Any, last: Any) -> None:
        in_flight = self._in_flight
        in_flight.work[id(args)] = args
        try:
            self._run(args, launch, first, last)
        finally:
            in_flight.end(args)

"""Work that runs without the GIL, and memory that is freed while such work uses it.

thread 1: launch with y at 4096 ------------------------- ends; the block at 4096 is given back
thread 2:            y.deallocate(): deferred      alloc(): another block
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from hal_core.concurrency import poll

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
        # id of a launch's packed arguments -> the arguments, eight bytes each, and the thread that
        # launches. A number among them may look like an address; then a block waits in vain, which
        # is harmless.
        self.work: dict[int, tuple[bytes, int]] = {}
        self.freed: deque[FreedBlock] = deque()

    def defer(self, *block: Any) -> bool:
        """Keep a freed block that work in flight uses, to give it back later; False: none does."""
        if not self._uses(*block):
            return False
        self.freed.append(block)
        if not self._uses(*block):  # the work has ended since, perhaps without seeing the block
            self.give_back()
        return True

    def _uses(self, allocator: CPUAllocator, start: int, nbytes: int, _: BufferSpec) -> bool:
        end = start + nbytes
        return any(
            start <= address < end
            for args, _thread in list(self.work.values())
            for (address,) in _addresses(args)
        )

    def wait(self, timeout: float | None) -> bool:
        """Wait for the work that other threads have in flight; False when `timeout` seconds pass.

        Work of the calling thread is left out: a signal handler would wait for ever for the launch
        that it has interrupted.
        """
        me = get_ident()
        # The entries are held, so that no later one has the same id.
        others = [item for item in list(self.work.items()) if item[1][1] != me]

        def ended() -> bool:
            others[:] = [(key, entry) for key, entry in others if self.work.get(key) is entry]
            return not others

        return poll(ended, math.inf if timeout is None else timeout)

    def give_back(self) -> None:
        """Give back the blocks that no work uses any more."""
        for _ in range(len(self.freed)):
            try:
                allocator, opaque, nbytes, options = self.freed.popleft()
            except IndexError:  # another thread was faster
                return
            allocator._give_back(opaque, nbytes, options)  # or defers again, for other work

    @contextmanager
    def using(self, *addresses: int) -> Iterator[None]:
        """Count the block of the `with` statement as work on the memory at these addresses."""
        args = b"".join(map(_pack, addresses))
        key = id(args)
        try:
            self.work[key] = args, get_ident()
            yield
        finally:  # no other call comes first: Ctrl-C in it would leave the work in flight
            self.work.pop(key, None)
            if self.freed:
                self.give_back()


class TrackedLaunch:
    """A launch function that releases the GIL, and is in flight while it runs."""

    __slots__ = ("_in_flight", "_run", "_work")

    def __init__(self, run: LaunchFunction, in_flight: InFlight) -> None:
        self._run, self._in_flight, self._work = run, in_flight, in_flight.work

    def __call__(self, args: bytes, launch: Any, first: Any, last: Any) -> None:
        key = id(args)
        try:
            self._work[key] = args, get_ident()
            self._run(args, launch, first, last)
        finally:
            self._work.pop(key, None)
            if self._in_flight.freed:
                self._in_flight.give_back()

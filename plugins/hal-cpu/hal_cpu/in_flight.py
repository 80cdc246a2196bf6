"""Work that runs without the GIL, and memory that is freed while such work uses it.

thread 1: launch with y at 4096 ------------------------- ends; the block at 4096 is given back
thread 2:            y.deallocate(): deferred      alloc(): another block
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from hal_core.concurrency import poll

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_cpu.allocator import CPUAllocator
    from hal_cpu.threads.job import LaunchFunction

Work = tuple[bytes, int]  # a launch's packed arguments, eight bytes each; the thread that launches
FreedBlock = tuple["CPUAllocator", int, "BufferSpec"]  # allocator, nbytes, options

_addresses = struct.Struct("@Q").iter_unpack
_pack = struct.Struct("@Q").pack


class InFlight:
    """The launches and long copies of one device that run now.

    Memory that one of them uses, and another thread frees, is given back when that work ends.
    Concurrency: no locks, as finalizers free memory at any moment, and Ctrl-C may end any call.
    Python lets both and other threads in at calls and at the end of a loop's turn only, so each
    change is one step: statements without these.
    """

    def __init__(self) -> None:
        # By the id of the arguments. A number among them may look like an address; then a block
        # waits in vain, which is harmless.
        self.work: dict[int, Work] = {}
        self.freed: dict[int, FreedBlock] = {}  # by address; such a block is live to its allocator

    def defer(self, allocator: CPUAllocator, start: int, nbytes: int, options: BufferSpec) -> bool:
        """Keep a freed block that work in flight uses, to give it back later; False: none does.

        When Ctrl-C ends this, nothing was done.
        """
        block = allocator, nbytes, options
        for key, entry in list(self.work.items()):
            # One step behind `_uses`: work that has not ended by now sees the block at its end.
            if _uses(entry, start, nbytes) and key in self.work and self.work[key] is entry:
                self.freed[start] = block
                return True
        return False

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
        """Give back the blocks that no work uses any more, as a free does."""
        for allocator in self.return_unused():
            allocator._settle_unless_busy()

    def return_unused(self) -> list[CPUAllocator]:
        """Return blocks that no work uses to their allocators, which have yet to settle them.

        Blocks that Ctrl-C leaves here, at the end of work or in the middle, are for the next call.
        """
        owners = []
        for start, block in list(self.freed.items()):
            allocator, nbytes, options = block
            returned = ((start, nbytes, options),)
            owners.append(allocator)
            if any(_uses(entry, start, nbytes) for entry in list(self.work.values())):
                continue
            if start in self.freed and self.freed[start] is block:  # no other thread was faster
                del self.freed[start]
                try:
                    allocator._returned += returned  # as `_take_back`, which is a call
                except BaseException:  # Ctrl-C in the recorder of a profile, before it has noted it
                    self.freed[start] = block
                    raise
        return owners

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


def _uses(work: Work, start: int, nbytes: int) -> bool:
    return any(start <= address < start + nbytes for (address,) in _addresses(work[0]))


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

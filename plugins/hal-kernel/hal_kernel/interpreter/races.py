"""Find races between threads by a record of the last accesses to each element, its shadow.

Two threads race on an element if one of them writes it and the other accesses it, not both by
atomics, and nothing orders the accesses. Only a barrier of their block between the two accesses
orders them. Threads of different blocks are ordered by fences and atomics alone (`order`).

    block 0                                   the shadow of y[0]            then
    thread 0 writes y[0]                      write: thread 0, epoch (0, 0)
    barrier
    thread 1 reads y[0], ordered              read: thread 1, epoch (0, 1)
    thread 2 writes y[0], no barrier between                                a race with the read
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hal_kernel.interpreter.lanes import EPOCH_BITS
from hal_kernel.interpreter.order import SEVERAL, Order

Array = npt.NDArray[Any]

READ, WRITE, ATOMIC, ATOMIC_READ = "a read", "a write", "an atomic", "an atomic read"
# kind of access -> the kinds of earlier access that it races with
_AGAINST = {
    READ: (WRITE, ATOMIC),
    WRITE: (READ, WRITE, ATOMIC, ATOMIC_READ),
    ATOMIC: (READ, WRITE),
    ATOMIC_READ: (WRITE,),
}
NONE = -1  # in the place of a thread or an epoch: there was no access yet


class Race(NamedTuple):
    """An access, and the earlier one that it races with."""

    access: int  # its index in the arrays given to `touch`
    thread: int  # the earlier thread: its number in the grid, or SEVERAL
    how: str  # the earlier access: READ, WRITE, ATOMIC or ATOMIC_READ


class Shadow:
    """The last accesses to each element, which are enough to find every race.

    For each element and kind of access: the last thread and epoch, or SEVERAL threads of one epoch,
    or SEVERAL blocks.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.threads: dict[str, Array] = {}
        self.epochs: dict[str, Array] = {}
        self.times: dict[str, Array] = {}  # of `order`, if there is one
        self.order: Order | None = None

    def touch(
        self, how: str, places: Array, threads: Array, epochs: Array, knows: Array | None = None
    ) -> Race | None:
        """Record one access of each thread, and return the first race, or None.

        The race is with an earlier access, or between two of these accesses. `knows` is what the
        threads know of others' fences.
        """
        for other in _AGAINST[how]:
            if other in self.epochs:
                before, by = self.epochs[other][places], self.threads[other][places]
                elsewhere = before >> EPOCH_BITS != epochs >> EPOCH_BITS
                # In the same epoch any other thread races. In another epoch of the same block a
                # barrier lies between, so only another block races.
                clash = np.where(before == epochs, by != threads, elsewhere) & (before != NONE)
                if self.order is not None and knows is not None and clash.any():
                    clash &= ~self.order.covers(by, before, self.times[other][places], knows)
                if clash.any():
                    first = int(clash.argmax())
                    return Race(first, int(by[first]), other)
        return self._record(how, places, threads, epochs)

    def _record(self, how: str, places: Array, threads: Array, epochs: Array) -> Race | None:
        """Record the accesses. Return the race if two of them write one element, else None."""
        if how not in self.epochs:
            self.threads[how] = np.full(self.size, NONE)
            self.epochs[how] = np.full(self.size, NONE)
            self.times[how] = np.zeros(self.size if self.order else 1, np.int64)
        last_thread, last_epoch = self.threads[how], self.epochs[how]
        before, by = last_epoch[places], last_thread[places]
        alone = (before != epochs) | (by == threads)
        here = (before == NONE) | (before >> EPOCH_BITS == epochs >> EPOCH_BITS)
        if self.order is not None:
            self.times[how][places] = self.order.time
            here |= how == WRITE  # behind all accesses so far
        last_thread[places] = np.where(alone, threads, SEVERAL)
        last_epoch[places] = np.where(here, epochs, SEVERAL)
        # If several of these threads access one element, the arrays now hold the last of them.
        others = last_thread[places] != threads
        if not others.any():
            return None
        if how == WRITE:
            first = int(others.argmax())
            return Race(first, int(last_thread[places[first]]), WRITE)
        last_thread[places[others]] = SEVERAL
        blocks = last_epoch[places] >> EPOCH_BITS != epochs >> EPOCH_BITS
        last_epoch[places[blocks]] = SEVERAL
        return None

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
from hal_kernel.interpreter.order import MATES, OTHERS, Last, Order

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
SEVERAL = -2  # in the place of a thread: there was more than one


class Race(NamedTuple):
    """An access, and the earlier one that it races with."""

    access: int  # its index in the arrays given to `touch`
    thread: int  # the earlier thread: its number in the grid, or SEVERAL
    how: str  # the earlier access: READ, WRITE, ATOMIC or ATOMIC_READ


class Shadow:
    """The last accesses to each element, which are enough to find every race.

    An access that is ordered behind all earlier ones of its kind stands for them.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.last: dict[str, Last] = {}  # by the kind of access
        self.order: Order | None = None

    def touch(
        self, how: str, places: Array, threads: Array, epochs: Array, knows: Array | None = None
    ) -> Race | None:
        """Record one access of each thread, and return the first race, or None.

        The race is with an earlier access, or between two of these accesses. `knows` is what the
        threads know of others' fences.
        """
        for other in _AGAINST[how]:
            if other in self.last:
                last = self.last[other].at(places)
                # In the same epoch any other thread races. In another epoch of the same block a
                # barrier lies between, so only another block races.
                same = last.epochs == epochs
                mates = same & ((last.threads != threads) | (last.spread & MATES != 0))
                elsewhere = last.epochs >> EPOCH_BITS != epochs >> EPOCH_BITS
                clash = mates | elsewhere | (last.spread & OTHERS != 0)
                clash &= last.epochs != NONE
                if self.order is not None and knows is not None and clash.any():
                    clash &= ~self.order.covers(last, threads, epochs, knows)
                if clash.any():
                    first = int(clash.argmax())
                    by = int(last.threads[first])
                    several = last.spread[first] & MATES or by == threads[first]
                    return Race(first, SEVERAL if several else by, other)
        return self._record(how, places, threads, epochs, knows)

    def _record(
        self, how: str, places: Array, threads: Array, epochs: Array, knows: Array | None
    ) -> Race | None:
        """Record the accesses. Return the race if two of them write one element, else None."""
        if how not in self.last:
            times = np.zeros((3, self.size if self.order else 0), np.int64)
            none, spread = np.full((2, self.size), NONE), np.zeros(self.size, np.int8)
            self.last[how] = Last(none[0], none[1], spread, times[0], times[1], times[2])
        last = self.last[how]
        before = last.at(places)
        again = before.threads == threads
        own_block = before.epochs >> EPOCH_BITS == epochs >> EPOCH_BITS
        spread = np.where(own_block | (before.epochs == NONE), before.spread & OTHERS, OTHERS)
        spread |= (before.epochs == epochs) & (before.spread & MATES | ~again)
        if how == WRITE:
            spread[:] = 0  # behind all accesses so far
        if self.order is not None and knows is not None:
            left = np.flatnonzero(spread)
            known = self.order.covers(before.at(left), threads[left], epochs[left], knows[left])
            spread[left[known]] = 0
            last.times[places] = self.order.time
            last.mates[places] = np.where(again, before.mates, before.times)
            last.others[places] = np.where(own_block, before.others, before.times)
        last.threads[places], last.epochs[places], last.spread[places] = threads, epochs, spread
        # If several of these threads access one element, the arrays now hold the last of them.
        for found, flag, times in (
            (last.threads[places] != threads, MATES, last.mates),
            (last.epochs[places] >> EPOCH_BITS != epochs >> EPOCH_BITS, OTHERS, last.others),
        ):
            if found.any():
                if how == WRITE:
                    first = int(found.argmax())
                    return Race(first, int(last.threads[places[first]]), WRITE)
                last.spread[places[found]] |= flag
                if self.order is not None:
                    times[places[found]] = self.order.time
        return None

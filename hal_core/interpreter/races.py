"""Races between threads, found by a record of the last accesses to each element.

Two threads race on an element if one of them writes it and the other touches it, not both by
atomics, and nothing orders them. What orders two threads is a barrier of their block between the
two accesses. Threads of different blocks are never ordered.

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

Array = npt.NDArray[Any]

READ, WRITE, ATOMIC = "a read", "a write", "an atomic"
_AGAINST = {READ: (WRITE, ATOMIC), WRITE: (READ, WRITE, ATOMIC), ATOMIC: (READ, WRITE)}
NONE, SEVERAL = -1, -2

# An epoch is a block's number and, in the lower bits, how many barriers it has passed.
EPOCH_BITS = 32


class Race(NamedTuple):
    """An access, and the earlier one that it races with."""

    access: int  # its place in the arrays given to `touch`
    thread: int  # of the earlier one: the number in the grid, or SEVERAL
    how: str  # the earlier one: READ, WRITE or ATOMIC


class Shadow:
    """For each element and each kind of access: the last thread and epoch, or SEVERAL threads of
    one epoch, or SEVERAL blocks. That is enough to find every race."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.threads: dict[str, Array] = {}
        self.epochs: dict[str, Array] = {}

    def touch(self, how: str, places: Array, threads: Array, epochs: Array) -> Race | None:
        """Record one access of each thread. Return the first race with an earlier access, or
        between two of these."""
        for other in _AGAINST[how]:
            if other in self.epochs:
                before, by = self.epochs[other][places], self.threads[other][places]
                elsewhere = before >> EPOCH_BITS != epochs >> EPOCH_BITS
                clash = np.where(before == epochs, by != threads, elsewhere) & (before != NONE)
                if clash.any():
                    first = int(clash.argmax())
                    return Race(first, int(by[first]), other)
        return self._record(how, places, threads, epochs)

    def _record(self, how: str, places: Array, threads: Array, epochs: Array) -> Race | None:
        """Record the accesses. Return a race between two of them: both write one element."""
        if how not in self.epochs:
            self.threads[how] = np.full(self.size, NONE)
            self.epochs[how] = np.full(self.size, NONE)
        last_thread, last_epoch = self.threads[how], self.epochs[how]
        before, by = last_epoch[places], last_thread[places]
        alone = (before != epochs) | (by == threads)
        here = (before == NONE) | (before >> EPOCH_BITS == epochs >> EPOCH_BITS)
        last_thread[places] = np.where(alone, threads, SEVERAL)
        last_epoch[places] = np.where(here, epochs, SEVERAL)
        # Where several of these threads touch one element, the arrays hold the last of them.
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

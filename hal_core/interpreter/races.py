"""Which threads touched an element, to tell races.

Two threads race on an element if one of them writes it and the other touches it, not both by
atomics, and nothing orders them. What orders two threads is a barrier of their block between the
two accesses. Threads of different blocks are never ordered.
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
    """An access, by its place in the arrays it was given with, and what it races with."""

    access: int
    thread: int  # the other's number in the grid, or SEVERAL
    how: str  # READ, WRITE or ATOMIC


class Shadow:
    """For each element and each way of access: the last thread and epoch, or that there were
    several in one epoch, or several blocks. That is enough to see every race."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.threads: dict[str, Array] = {}
        self.epochs: dict[str, Array] = {}

    def touch(self, how: str, places: Array, threads: Array, epochs: Array) -> Race | None:
        """Records one access a thread. Gives the first race, with what was before or within."""
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
        if how not in self.epochs:
            self.threads[how] = np.full(self.size, NONE)
            self.epochs[how] = np.full(self.size, NONE)
        last_thread, last_epoch = self.threads[how], self.epochs[how]
        before, by = last_epoch[places], last_thread[places]
        alone = (before != epochs) | (by == threads)
        here = (before == NONE) | (before >> EPOCH_BITS == epochs >> EPOCH_BITS)
        last_thread[places] = np.where(alone, threads, SEVERAL)
        last_epoch[places] = np.where(here, epochs, SEVERAL)
        # Of threads that touch one element in this access, the arrays have kept one.
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

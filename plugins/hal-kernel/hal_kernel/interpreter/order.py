"""Follow what fences order: accesses before a fence of one thread, and those behind one of another.

A thread that passes a fence and then changes an element by an atomic leaves its fence's time there.
An atomic load that acquires, and a store that releases, are a fence for their own element alone.
An atomic that finds the time, and a fence behind it, let another thread know all that was done
before fences up to that time:

    block 0                              block 1
    data[0] = 7
    fence          at time 5
    atomic         flag[0] has 5
                                         atomic of flag[0]   hears of 5
                                         fence               knows what was done up to 5
                                         data[0]             ordered behind the write
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hal_kernel.interpreter.lanes import EPOCH_BITS, Lanes

Array = npt.NDArray[Any]

MATES, OTHERS = 1, 2


class _Fence(NamedTuple):
    """The threads that have passed a fence together, and their epochs, both sorted."""

    time: int
    threads: Array
    epochs: Array

    def first_after(self, epochs: Array) -> Array:
        """Return the first of the fence's epochs that is not below each of these; -1 for none."""
        found: Array = np.append(self.epochs, -1)[np.searchsorted(self.epochs, epochs)]
        return found


class Last(NamedTuple):
    """The last access of one kind to each element, and what is left of those before it."""

    threads: Array  # NONE where there was no access yet
    epochs: Array
    spread: Array  # MATES, if other threads of its epoch accessed the element too; OTHERS: blocks
    times: Array  # of `Order`; the times are empty in a kernel without fences
    mates: Array  # the time of the last access by another thread of the epoch
    others: Array  # that by another block

    def at(self, places: Array) -> Last:
        return Last(*(part[places] if len(part) else part for part in self))


class Order:
    """The fences of one launch."""

    def __init__(self) -> None:
        self.time = 0
        self._fences: list[_Fence] = []
        # Place and size of an array, whatever views it has -> the times in its elements.
        self._left: dict[tuple[int, int], Array] = {}

    def fence(self, lanes: Lanes, running: Array) -> None:
        self._mark(lanes, running)
        lanes.fenced[running] = self.time
        lanes.knows[running] = np.maximum(lanes.knows, lanes.heard)[running]

    def _mark(self, lanes: Lanes, running: Array) -> None:
        """Begin a new time, behind all that the threads have done."""
        self.time += 1
        threads, epochs = lanes.threads[running], lanes.epochs[running]
        self._fences.append(_Fence(self.time, np.sort(threads), np.unique(epochs)))

    def meet(self, lanes: Lanes, running: Array) -> None:
        """Let the threads of a block, at a barrier, know what each of them knows."""
        for known in (lanes.heard, lanes.knows):
            rows = known.reshape(lanes.blocks, -1)
            most = np.repeat(rows.max(axis=1), rows.shape[1])
            known[running] = most[running]

    def change(self, lanes: Lanes, running: Array, elements: Array, places: Array) -> None:
        """Record atomics, which the threads execute one after the other."""
        left = self._times(elements)
        for lane, place in zip(running, places, strict=True):
            lanes.heard[lane] = max(lanes.heard[lane], left[place])
            left[place] = max(left[place], lanes.fenced[lane])

    def load(
        self, lanes: Lanes, running: Array, elements: Array, places: Array, acquires: bool
    ) -> None:
        """Record atomic loads. One that acquires knows at once what it hears of."""
        found = self._times(elements)[places]
        for times in (lanes.heard, lanes.knows) if acquires else (lanes.heard,):
            times[running] = np.maximum(times[running], found)

    def store(
        self, lanes: Lanes, running: Array, elements: Array, places: Array, releases: bool
    ) -> None:
        """Record atomic stores. They leave their own time: who reads them hears of no other."""
        if releases:
            self._mark(lanes, running)
        self._times(elements)[places] = self.time if releases else lanes.fenced[running]

    def _times(self, elements: Array) -> Array:
        """Return the times in an array's elements."""
        key = elements.__array_interface__["data"][0], len(elements)
        if key not in self._left:
            self._left[key] = np.zeros(len(elements), np.int64)
        return self._left[key]

    def covers(self, last: Last, threads: Array, epochs: Array, knows: Array) -> Array:
        """Tell for which elements the threads that now access them know of the last accesses."""
        block = last.epochs >> EPOCH_BITS
        passed = (block == epochs >> EPOCH_BITS) & (last.epochs != epochs)  # a barrier since
        one = passed | (last.threads == threads)
        mates = passed | (last.spread & MATES == 0)
        others = last.spread & OTHERS == 0
        for fence in self._fences:
            known = fence.time <= knows
            if not known.any():
                continue
            by = np.searchsorted(fence.threads, last.threads).clip(max=len(fence.threads) - 1)
            # A thread of the same block that has passed a barrier since knows of the access too.
            after = fence.first_after(last.epochs + 1)
            behind = (fence.threads[by] == last.threads) | (after >> EPOCH_BITS == block)
            one |= known & (last.times < fence.time) & behind
            near = fence.first_after(last.epochs) >> EPOCH_BITS == block
            mates |= known & (last.mates < fence.time) & near
            others |= known & (last.others < fence.time)
        covered: Array = one & mates & others
        return covered

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

SEVERAL = -2  # in the place of a thread or an epoch: there was more than one


class _Fence(NamedTuple):
    """The threads that have passed a fence together, and their epochs, both sorted."""

    time: int
    threads: Array
    epochs: Array


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

    def covers(self, threads: Array, epochs: Array, times: Array, knows: Array) -> Array:
        """Tell which earlier accesses the threads that now access the elements know of.

        `threads`, `epochs` and `times` are those of the earlier accesses.
        """
        found = np.zeros(len(threads), bool)
        for fence in self._fences:
            seen = (times < fence.time) & (fence.time <= knows)
            if not seen.any():
                continue
            by = np.searchsorted(fence.threads, threads).clip(max=len(fence.threads) - 1)
            # A thread of the same block that has passed a barrier since knows of the access too.
            later = np.searchsorted(fence.epochs, epochs, "right").clip(max=len(fence.epochs) - 1)
            behind = fence.epochs[later]
            same_block = (behind >> EPOCH_BITS == epochs >> EPOCH_BITS) & (behind > epochs)
            found |= seen & ((fence.threads[by] == threads) | same_block | (epochs == SEVERAL))
        return found

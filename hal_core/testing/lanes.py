"""The threads that are interpreted together: some whole blocks of the grid, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from hal_core.geometry import Dim3
from hal_core.testing.races import EPOCH_BITS

Array = npt.NDArray[Any]

_TOGETHER = 1 << 16  # threads; arrays of these stay in the cache


class Lanes:
    """Blocks `first` to `first + blocks`; element k of every array is one thread's."""

    def __init__(self, grid: Dim3, block: Dim3, first: int, blocks: int) -> None:
        self.grid, self.block = grid, block
        self.blocks = blocks
        self.block_threads = block[0] * block[1] * block[2]
        self.size = blocks * self.block_threads
        lane = np.arange(self.size)
        self.own_block = lane // self.block_threads  # from 0
        self._first, self._in_block = first, lane % self.block_threads
        self.threads = first * self.block_threads + lane  # numbers in the grid
        self.epochs = (first + self.own_block) << EPOCH_BITS

    @classmethod
    def parts(cls, grid: Dim3, block: Dim3) -> Iterator[Lanes]:
        """All blocks of a grid, as many at a time as are quick together."""
        blocks = grid[0] * grid[1] * grid[2]
        step = max(1, _TOGETHER // (block[0] * block[1] * block[2]))
        for first in range(0, blocks, step):
            yield cls(grid, block, first, min(step, blocks - first))

    def special(self, kind: str, axis: int) -> Array:
        """`global_idx(0)` and the others, as int32."""
        if kind in ("block_dim", "grid_dim"):
            return np.array([(self.block if kind == "block_dim" else self.grid)[axis]], np.int32)
        found: Array
        if kind == "thread_idx":
            found = _along(self._in_block, self.block, axis)
        elif kind == "block_idx":
            found = _along(self._first + self.own_block, self.grid, axis)
        else:
            own = self.special("block_idx", axis) * self.block[axis]
            found = own + self.special("thread_idx", axis)
        return found.astype(np.int32)

    def missing(self, active: Array) -> Array:
        """The lanes that do not come along although others of their block do."""
        rows = active.reshape(self.blocks, self.block_threads)
        return np.flatnonzero(rows.any(axis=1, keepdims=True) & ~rows)

    def name(self, thread: int) -> str:
        """A thread, by its number in the grid, as an error calls it."""
        block, own = divmod(int(thread), self.block_threads)
        where = tuple(int(_along(np.array(block), self.grid, axis)) for axis in range(3))
        who = tuple(int(_along(np.array(own), self.block, axis)) for axis in range(3))
        return f"thread {who} of block {where}"


def _along(number: Array, extents: Dim3, axis: int) -> Array:
    before = (1, extents[0], extents[0] * extents[1])[axis]
    return number // before % extents[axis]

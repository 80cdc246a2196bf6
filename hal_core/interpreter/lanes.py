"""The threads that are interpreted together: some whole blocks of the grid, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from hal_core.geometry import Dim3
from hal_core.interpreter.races import EPOCH_BITS

Array = npt.NDArray[Any]

_TOGETHER = 1 << 16  # threads; arrays of these stay in the cache


class Lanes:
    """Some blocks of a grid, `first` to `first + blocks` in an order that `seed` chooses; element k
    of every array is one thread's."""

    def __init__(self, grid: Dim3, block: Dim3, first: int, blocks: int, seed: int = 0) -> None:
        self.grid, self.block = grid, block
        self.blocks = blocks
        self.block_threads = block[0] * block[1] * block[2]
        self.size = blocks * self.block_threads
        lane = np.arange(self.size)
        self.own_block = lane // self.block_threads  # from 0
        grid_blocks = grid[0] * grid[1] * grid[2]
        self._block = _shuffled(first + self.own_block, grid_blocks, seed)  # numbers in the grid
        self._in_block = _shuffled(lane % self.block_threads, self.block_threads, seed)
        self.threads = self._block * self.block_threads + self._in_block
        self.epochs = self._block << EPOCH_BITS

    @classmethod
    def parts(cls, grid: Dim3, block: Dim3, seed: int = 0) -> Iterator[Lanes]:
        """All blocks of a grid, as many at a time as are quick together; with `seed` other than 0
        not in the order of their numbers."""
        blocks = grid[0] * grid[1] * grid[2]
        step = max(1, _TOGETHER // (block[0] * block[1] * block[2]))
        for first in range(0, blocks, step):
            yield cls(grid, block, first, min(step, blocks - first), seed)

    def special(self, kind: str, axis: int) -> Array:
        """`global_idx(0)` and the others, as int32."""
        if kind in ("block_dim", "grid_dim"):
            return np.array([(self.block if kind == "block_dim" else self.grid)[axis]], np.int32)
        found: Array
        if kind == "thread_idx":
            found = _along(self._in_block, self.block, axis)
        elif kind == "block_idx":
            found = _along(self._block, self.grid, axis)
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


def _shuffled(numbers: Array, count: int, seed: int) -> Array:
    """Another order of 0 to `count`, found without writing all of it down."""
    if not seed:
        return numbers
    random = Random(seed)
    step = random.randrange(1, 1 << 16)
    while gcd(step, count) > 1:
        step += 1
    shuffled: Array = (numbers * step + random.randrange(count)) % count
    return shuffled


def _along(number: Array, extents: Dim3, axis: int) -> Array:
    before = (1, extents[0], extents[0] * extents[1])[axis]
    return number // before % extents[axis]

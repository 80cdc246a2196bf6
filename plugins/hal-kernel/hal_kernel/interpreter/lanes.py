"""Lanes: the threads that are executed together, those of several whole blocks of the grid."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import gcd
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from hal_core.geometry import Dim3

Array = npt.NDArray[Any]

# An epoch is the number of a block and, in the lower bits, the number of barriers it has passed.
EPOCH_BITS = 32
_LANES = 1 << 16  # arrays of this size fit into the cache


class Lanes:
    """The threads of the blocks `first` to `first + blocks`, in an order that `seed` chooses.

    Every array has one element per lane: the number of its block, of its thread, ...
    """

    def __init__(self, grid: Dim3, block: Dim3, first: int, blocks: int, seed: int = 0) -> None:
        self.grid, self.block = grid, block
        self.blocks = blocks
        self.block_threads = block[0] * block[1] * block[2]
        self.size = blocks * self.block_threads
        lane = np.arange(self.size)
        self.own_block = lane // self.block_threads  # counted from 0 in these lanes
        grid_blocks = grid[0] * grid[1] * grid[2]
        self._block = _shuffled(first + self.own_block, grid_blocks, seed)  # its number in the grid
        self._in_block = _shuffled(lane % self.block_threads, self.block_threads, seed)
        self.threads = self._block * self.block_threads + self._in_block
        self.epochs = self._block << EPOCH_BITS  # no barrier passed yet
        # Times of fences: a lane's own last one, what it has heard of, what it knows; see `order`.
        self.fenced, self.heard, self.knows = np.zeros((3, self.size), np.int64)
        self.subgroup = 1  # threads of a subgroup

    @classmethod
    def parts(cls, grid: Dim3, block: Dim3, seed: int = 0) -> Iterator[Lanes]:
        """Yield all blocks of a grid, as many at a time as fit into the cache."""
        blocks = grid[0] * grid[1] * grid[2]
        step = max(1, _LANES // (block[0] * block[1] * block[2]))
        for first in range(0, blocks, step):
            yield cls(grid, block, first, min(step, blocks - first), seed)

    def special(self, kind: str, axis: int) -> Array:
        """Return the value of a SPECIAL, such as `global_idx(0)`, as int32."""
        if kind in ("block_dim", "grid_dim"):
            return np.array([(self.block if kind == "block_dim" else self.grid)[axis]], np.int32)
        if kind == "subgroup_size":
            return np.array([self.subgroup], np.int32)
        found: Array
        if kind == "subgroup_idx":
            found = self._in_block // self.subgroup
        elif kind == "subgroup_lane":
            found = self._in_block % self.subgroup
        elif kind == "subgroup_threads":
            before = self._in_block // self.subgroup * self.subgroup
            found = np.minimum(self.subgroup, self.block_threads - before)
        elif kind == "thread_idx":
            found = _along(self._in_block, self.block, axis)
        elif kind == "block_idx":
            found = _along(self._block, self.grid, axis)
        else:
            own = self.special("block_idx", axis) * self.block[axis]
            found = own + self.special("thread_idx", axis)
        return found.astype(np.int32)

    def missing(self, active: Array) -> Array:
        """Return the lanes that are not active, of blocks in which other lanes are."""
        rows = active.reshape(self.blocks, self.block_threads)
        return np.flatnonzero(rows.any(axis=1, keepdims=True) & ~rows)

    @cached_property
    def subgroups(self) -> Array:
        """The number of each lane's subgroup, counted over all these blocks."""
        each = -(-self.block_threads // self.subgroup)
        number: Array = self.own_block * each + self._in_block // self.subgroup
        return number

    @cached_property
    def members(self) -> Array:
        """The lane of each thread of each subgroup; -1 where a block's last one has fewer.

        Shape: (subgroups, threads of one).
        """
        found = np.full((int(self.subgroups.max()) + 1, self.subgroup), -1)
        found[self.subgroups, self._in_block % self.subgroup] = np.arange(self.size)
        return found

    def name(self, thread: int) -> str:
        """Return a name, for errors, of the thread with this number in the grid."""
        block, own = divmod(int(thread), self.block_threads)
        where = tuple(int(_along(np.array(block), self.grid, axis)) for axis in range(3))
        who = tuple(int(_along(np.array(own), self.block, axis)) for axis in range(3))
        return f"thread {who} of block {where}"


def _shuffled(numbers: Array, count: int, seed: int) -> Array:
    """Map numbers to a permutation of 0 to `count`, without a table of all of them.

    A step that is coprime to `count` reaches every number once. With count 8, step 3 and offset 1:
    0 1 2 3 4 5 6 7 -> 1 4 7 2 5 0 3 6
    """
    if not seed:
        return numbers
    random = Random(seed)
    step = random.randrange(1, 1 << 16)
    while gcd(step, count) > 1:
        step += 1
    shuffled: Array = (numbers * step + random.randrange(count)) % count
    return shuffled


def _along(number: Array, extents: Dim3, axis: int) -> Array:
    """Return a coordinate of a block or thread, given its number."""
    before = (1, extents[0], extents[0] * extents[1])[axis]
    return number // before % extents[axis]

"""Launch geometry: from what a caller writes to a grid of blocks within a device's limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from hal_core.errors import InvalidArgument

Dim3 = tuple[int, int, int]
Extent = int | Sequence[int]

DEFAULT_BLOCK_THREADS = 256
_MAX_INDEX = 2**31 - 1  # global_idx is an int32
_MAX_THREADS = 2**62  # of a launch; backends count them in 64 bits


class Limits(NamedTuple):
    """What a launch or an allocation may ask of a device. Blocks and grids are (x, y, z)."""

    max_block: tuple[int, int, int]
    max_block_threads: int
    max_grid: tuple[int, int, int]
    shared_nbytes: int
    view_alignment: int  # bytes: what a view's offset must divide by in a `Source` kernel
    max_alloc_nbytes: int


class Rules(NamedTuple):
    """What the launches of one program may ask of its device."""

    operation: str
    device: str
    limits: Limits
    max_block_threads: int  # of this program, at most the device's
    fixed: Dim3 | None  # the only block shape the kernel runs with
    shared_nbytes: int = 0  # a block's, whatever the launch adds

    def resolve(
        self, grid: Extent | None, block: Extent | None, threads: Extent | None, shared: int
    ) -> tuple[Dim3, Dim3]:
        """(grid, block). Raises: InvalidArgument naming the value and the limit."""
        fixed = self.fixed
        if threads is not None:
            if grid is not None:
                self._refuse("give grid and block, or threads, not both", (grid, threads))
            wanted = self._dim3("threads", threads)
            chosen = self._dim3("block", block) if block is not None else None
            shape = chosen or fixed or self._choose_block(wanted)
            blocks = _blocks(wanted, shape)
        elif grid is not None and block is not None:
            shape, blocks = self._dim3("block", block), self._dim3("grid", grid)
        elif grid is not None and fixed is not None:
            shape, blocks = fixed, self._dim3("grid", grid)
        else:
            self._refuse("give grid and block, or threads")
        if fixed and shape != fixed:
            self._refuse("the kernel fixes its block", shape, f"block {fixed}")
        self._check_limits(blocks, shape, shared)
        return blocks, shape

    def _choose_block(self, threads: Dim3) -> Dim3:
        """Fills a block along x, then y, then z: neighbours in x share a row of memory."""
        limits = self.limits
        room = min(DEFAULT_BLOCK_THREADS, self.max_block_threads)
        x = min(threads[0], room, limits.max_block[0])
        y = min(threads[1], room // max(x, 1), limits.max_block[1])
        z = min(threads[2], room // max(x * y, 1), limits.max_block[2])
        return x, y, z

    def _check_limits(self, grid: Dim3, block: Dim3, shared: int) -> None:
        limits = self.limits
        for axis, most, used in zip("xyz", limits.max_block, block, strict=True):
            if used > most:
                self._refuse(f"block.{axis} is too large", used, most)
        for axis, most, used in zip("xyz", limits.max_grid, grid, strict=True):
            if used > most:
                self._refuse(f"grid.{axis} is too large", used, most)
        total = block[0] * block[1] * block[2]
        if total > self.max_block_threads:
            self._refuse("a block has too many threads", total, self.max_block_threads)
        for axis, blocks, used in zip("xyz", grid, block, strict=True):
            if blocks * used > _MAX_INDEX:
                self._refuse(
                    f"threads along {axis} exceed a 32-bit index", blocks * used, _MAX_INDEX
                )
        all_threads = total * grid[0] * grid[1] * grid[2]
        if all_threads > _MAX_THREADS:
            self._refuse("too many threads", all_threads, _MAX_THREADS)
        room = limits.shared_nbytes - self.shared_nbytes
        if not (isinstance(shared, int) and 0 <= shared <= max(0, room)):
            beside = f" beside the kernel's own {self.shared_nbytes}" * (self.shared_nbytes > 0)
            self._refuse(f"bytes of shared memory{beside}", shared, max(0, room))

    def _dim3(self, what: str, extent: Any) -> Dim3:
        items = (extent,) if hasattr(extent, "__index__") else extent
        try:
            sizes = [int(item.__index__()) for item in items]
        except (TypeError, AttributeError):
            sizes = []
        if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
            self._refuse(f"{what} is one to three integers, none negative", extent)
        return (*sizes, 1, 1)[:3]  # type: ignore[return-value]

    def _refuse(self, problem: str, *values: object) -> NoReturn:
        facts = dict(zip(("got", "limit"), values, strict=False))
        raise InvalidArgument(
            self.operation,
            problem,
            device=self.device,
            fix="grid= counts blocks, block= threads of a block, threads= all threads.",
            **facts,
        )


def is_plain(extent: object) -> bool:
    """Whether a part of a geometry can be a key: it will not mean something else later."""
    if type(extent) is tuple:
        return all(type(size) is int for size in extent)
    return extent is None or type(extent) is int


def _blocks(threads: Dim3, block: Dim3) -> Dim3:
    """How many blocks cover the threads."""
    x, y, z = (-(-count // size) if size else 0 for count, size in zip(threads, block, strict=True))
    return x, y, z

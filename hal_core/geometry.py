"""Launch geometry: turn grid, block or threads of a caller into blocks that a device can run."""

from __future__ import annotations

from collections.abc import Sequence
from operator import le, mul
from typing import Any, NamedTuple, NoReturn

from hal_core.errors import InvalidArgument

Dim3 = tuple[int, int, int]
Extent = int | Sequence[int]

DEFAULT_BLOCK_THREADS = 256
MOST_ADDED = 1 << 16  # a constant up to this, added to an index of a thread, does not wrap int32
_MAX_INDEX = 2**31 - 1 - MOST_ADDED  # global_idx is an int32
_MAX_THREADS = 2**62  # of a whole launch; backends count them in 64 bits

_FORMS = "Give grid= (blocks) and block= (threads of a block), or threads= (all threads)."
_SMALLER = {
    "block": "Give smaller blocks and more of them, or threads= alone.",
    "grid": "Launch several times, or let each thread do several elements: "
    "while i < n: ...; i += hal.grid_dim(0) * hal.block_dim(0).",
}


class Limits(NamedTuple):
    """The limits of a device for launches and allocations. Blocks and grids are (x, y, z)."""

    max_block: tuple[int, int, int]
    max_block_threads: int
    max_grid: tuple[int, int, int]
    shared_nbytes: int
    view_alignment: int  # bytes: it divides the offset of each view that a `Source` kernel takes
    max_alloc_nbytes: int


class Rules(NamedTuple):
    """The limits for the launches of one program."""

    operation: str
    device: str
    limits: Limits
    max_block_threads: int  # of this program, at most the device's
    fixed: Dim3 | None  # the only block shape the kernel runs with
    shared_nbytes: int = 0  # of each block, without the dynamic shared memory of a launch

    def resolve(
        self, grid: Extent | None, block: Extent | None, threads: Extent | None, shared: int
    ) -> tuple[Dim3, Dim3]:
        """Return (grid, block). Raises: InvalidArgument naming the value and the limit."""
        fixed, limits = self.fixed, self.limits
        shape = fixed if block is None else self._dim3("block", block)
        if threads is not None:
            if grid is not None:
                self._refuse("both grid and threads are given", (grid, threads))
            count = self._dim3("threads", threads)
            if shape is None:
                # Along x, then y, then z: neighbours in x share a row of memory.
                room = min(DEFAULT_BLOCK_THREADS, self.max_block_threads)
                x = min(count[0], room, limits.max_block[0])
                y = min(count[1], room // max(x, 1), limits.max_block[1])
                z = min(count[2], room // max(x * y, 1), limits.max_block[2])
                shape = x, y, z
            elif 0 in shape and 0 not in count:
                fix = "Leave out block=, or give 1 or more along each axis."
                self._refuse("threads cannot run in blocks of none", shape, f"for {count}", fix=fix)
            (x, y, z), (a, b, c) = count, shape
            # Blocks without threads run none.
            blocks = (-(-x // a), -(-y // b), -(-z // c)) if a and b and c else (0, 0, 0)
        elif grid is not None and shape is not None:
            blocks = self._dim3("grid", grid)
        else:
            self._refuse("nothing says how many threads run")
        if fixed and shape != fixed:
            fix = "Leave out block=, which is the kernel's."
            self._refuse("the kernel fixes its block", shape, f"block {fixed}", fix=fix)
        self._check_limits(blocks, shape, shared)
        return blocks, shape

    def _check_limits(self, grid: Dim3, block: Dim3, shared: int) -> None:
        limits = self.limits
        x, y, z = map(mul, grid, block)
        if (
            max(x, y, z) <= _MAX_INDEX
            and x * y * z <= _MAX_THREADS
            and block[0] * block[1] * block[2] <= self.max_block_threads
            and (type(shared) is int and shared == 0)
            and all(map(le, block + grid, limits.max_block + limits.max_grid))
        ):
            return
        for what, sizes, most in (
            ("block", block, limits.max_block),
            ("grid", grid, limits.max_grid),
        ):
            for axis, size, limit in zip("xyz", sizes, most, strict=True):
                if size > limit:
                    self._refuse(f"{what}.{axis} is too large", size, limit, fix=_SMALLER[what])
        total = block[0] * block[1] * block[2]
        if total > self.max_block_threads:
            problem, fix = "a block has too many threads", _SMALLER["block"]
            self._refuse(problem, total, self.max_block_threads, fix=fix)
        for axis, blocks, size in zip("xyz", grid, block, strict=True):
            if blocks * size > _MAX_INDEX:
                problem = f"threads along {axis} exceed a 32-bit index"
                self._refuse(problem, blocks * size, _MAX_INDEX, fix=_SMALLER["grid"])
        total *= grid[0] * grid[1] * grid[2]
        if total > _MAX_THREADS:
            self._refuse("too many threads", total, _MAX_THREADS, fix=_SMALLER["grid"])
        room = max(0, limits.shared_nbytes - self.shared_nbytes)
        if not (isinstance(shared, int) and 0 <= shared <= room):
            own = f", beside the kernel's own {self.shared_nbytes} bytes"
            problem = "shared= is no number of bytes that fits into a block's shared memory"
            problem += own if self.shared_nbytes else ""
            self._refuse(problem, shared, room, fix="A kernel's own arrays need no shared=.")

    def _dim3(self, what: str, extent: Any) -> Dim3:
        if type(extent) is int and extent >= 0:
            return extent, 1, 1
        items = (extent,) if hasattr(extent, "__index__") else extent
        sizes = integers(items) or ()
        if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
            self._refuse(f"{what} must be one to three integers that are not negative", extent)
        return (*sizes, 1, 1)[:3]  # type: ignore[return-value]

    def _refuse(self, problem: str, *values: object, fix: str = _FORMS) -> NoReturn:
        facts = dict(zip(("got", "limit"), values, strict=False))
        raise InvalidArgument(self.operation, problem, device=self.device, fix=fix, **facts)


def integers(given: Any) -> tuple[int, ...] | None:
    """Return a sequence of integers of any class as Python's; None for what is none, as a set."""
    if not (isinstance(given, Sequence) or hasattr(given, "__array__")):
        return None
    try:
        return tuple(int(one.__index__()) for one in given)
    except (AttributeError, TypeError):
        return None


def is_plain(extent: object) -> bool:
    """Return True for a part of a geometry that can be a key: it never changes its value."""
    if type(extent) is tuple:
        return all(type(size) is int for size in extent)
    return extent is None or type(extent) is int

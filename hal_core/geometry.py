"""Launch geometry: turn grid, block or threads of a caller into blocks that a device can run."""

from __future__ import annotations

from collections.abc import Sequence
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
        blocks, shape = self.blocks_of(grid, block, threads)
        self.check_limits(blocks, shape, shared)
        return blocks, shape

    def blocks_of(
        self, grid: Extent | None, block: Extent | None, threads: Extent | None
    ) -> tuple[Dim3, Dim3]:
        """Return (grid, block), whose limits are not checked. Raises: InvalidArgument."""
        fixed = self.fixed
        shape = fixed if block is None else self._dim3("block", block)
        if threads is not None:
            if grid is not None:
                self._refuse("both grid and threads are given", (grid, threads))
            x, y, z = count = self._dim3("threads", threads)
            if shape is None:
                # Along x, then y, then z: neighbours in x share a row of memory.
                room, most = self.max_block_threads, self.limits.max_block
                room = room if room < DEFAULT_BLOCK_THREADS else DEFAULT_BLOCK_THREADS
                a = x if x < room else room
                a = a if a < most[0] else most[0]
                b = min(y, room // max(a, 1), most[1]) if y > 1 else y
                c = min(z, room // max(a * b, 1), most[2]) if z > 1 else z
                shape = a, b, c
            elif 0 in shape and 0 not in count:
                fix = "Leave out block=, or give 1 or more along each axis."
                self._refuse("threads cannot run in blocks of none", shape, f"for {count}", fix=fix)
            a, b, c = shape
            # Blocks without threads run none.
            blocks = (-(-x // a), -(-y // b), -(-z // c)) if a and b and c else (0, 0, 0)
        elif grid is not None and shape is not None:
            blocks = self._dim3("grid", grid)
        else:
            self._refuse("nothing says how many threads run")
        if fixed and shape != fixed:
            fix = "Leave out block=, which is the kernel's."
            self._refuse("the kernel fixes its block", shape, f"block {fixed}", fix=fix)
        return blocks, shape

    def check_limits(self, grid: Dim3, block: Dim3, shared: int) -> None:
        """Raise InvalidArgument where a device or a program runs no such blocks."""
        limits = self.limits
        # Spelt out, as launches of new sizes wait for it.
        (a, b, c), (x, y, z) = block, grid
        (most_a, most_b, most_c), (most_x, most_y, most_z) = limits.max_block, limits.max_grid
        size, wide, high, deep = a * b * c, a * x, b * y, c * z
        if (
            size <= self.max_block_threads
            and (a <= most_a and b <= most_b and c <= most_c)
            and (x <= most_x and y <= most_y and z <= most_z)
            and (wide <= _MAX_INDEX and high <= _MAX_INDEX and deep <= _MAX_INDEX)
            and wide * high * deep <= _MAX_THREADS
            and (shared == 0 and type(shared) is int)
        ):
            return
        for what, sizes, most in (
            ("block", block, limits.max_block),
            ("grid", grid, limits.max_grid),
        ):
            for axis, given, limit in zip("xyz", sizes, most, strict=True):
                if given > limit:
                    self._refuse(f"{what}.{axis} is too large", given, limit, fix=_SMALLER[what])
        if size > self.max_block_threads:
            problem, fix = "a block has too many threads", _SMALLER["block"]
            self._refuse(problem, size, self.max_block_threads, fix=fix)
        for axis, total in zip("xyz", (wide, high, deep), strict=True):
            if total > _MAX_INDEX:
                problem = f"threads along {axis} exceed a 32-bit index"
                self._refuse(problem, total, _MAX_INDEX, fix=_SMALLER["grid"])
        total = wide * high * deep
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
        if type(extent) is tuple and is_plain(extent):
            sizes = extent
        else:
            sizes = integers((extent,) if hasattr(extent, "__index__") else extent) or ()
        if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
            self._refuse(f"{what} must be one to three integers that are not negative", extent)
        return (*sizes, 1, 1)[:3]

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
        for size in extent:  # noqa: SIM110 - `all` of a generator takes three times as long
            if type(size) is not int:
                return False
        return True
    return extent is None or type(extent) is int

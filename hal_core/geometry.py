"""Launch geometry: turn grid, block or threads of a caller into blocks that a device can run."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
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


class Rules:
    """The limits for the launches of one program."""

    __slots__ = ("_most", "device", "fixed", "limits", "max_block_threads", "operation",
                 "shared_nbytes")  # fmt: skip

    def __init__(
        self,
        operation: str,
        device: str,
        limits: Limits,
        max_block_threads: int,  # of this program, at most the device's
        fixed: Dim3 | None,  # the only block shape the kernel runs with
        shared_nbytes: int = 0,  # of each block, without the dynamic shared memory of a launch
    ) -> None:
        self.operation, self.device, self.limits, self.fixed = operation, device, limits, fixed
        self.max_block_threads, self.shared_nbytes = max_block_threads, shared_nbytes
        room = min(max_block_threads, DEFAULT_BLOCK_THREADS)
        self._most = room, min(room, limits.max_block[0])  # threads of a block, and along x

    def resolve(
        self, grid: Extent | None, block: Extent | None, threads: Extent | None, shared: int
    ) -> tuple[Dim3, Dim3]:
        """Return (grid, block). Raises: InvalidArgument naming the value and the limit."""
        x, y, z, a, b, c = self.blocks_of(*self.plain(grid, block, threads, shared)[:3])
        blocks, shape = (x, y, z), (a, b, c)
        self.check_limits(blocks, shape, shared)
        return blocks, shape

    def plain(self, grid: Any, block: Any, threads: Any, shared: Any) -> tuple[Any, ...]:
        """Return the sizes as Python's integers and tuples of them. Raises: InvalidArgument."""
        (count,) = integers((shared,), _whole) or (-1,)
        if count < 0:
            self.check_limits((1, 1, 1), (1, 1, 1), shared)
        extents = self._plain("grid", grid), self._plain("block", block)
        return *extents, self._plain("threads", threads), count

    def _plain(self, what: str, extent: Any) -> Any:
        if is_plain(extent):
            return extent
        # An array has __index__, which only one of a number answers.
        scalar = integers((extent,), _whole)
        found = scalar or integers(extent, _whole)
        if not found:
            self._refuse_extent(what, extent)
        return scalar[0] if scalar else found

    def blocks_of(self, grid: Any, block: Any, threads: Any) -> tuple[int, int, int, int, int, int]:
        """Return a grid and a block for plain sizes, without a look at limits.

        Raises: InvalidArgument.
        """
        fixed = self.fixed
        shape = fixed if block is None else self._dim3("block", block)
        if threads is not None:
            if grid is not None:
                self._refuse("both grid and threads are given", (grid, threads))
            y = z = 1
            if threads.__class__ is int and threads >= 0:
                x = threads
            else:
                x, y, z = self._dim3("threads", threads)
            if shape is None:
                # Along x, then y, then z: neighbours in x share a row of memory.
                room, a = self._most
                a = x if x < a else a
                b = min(y, room // max(a, 1), self.limits.max_block[1]) if y > 1 else y
                c = min(z, room // max(a * b, 1), self.limits.max_block[2]) if z > 1 else z
            else:
                a, b, c = shape
                if 0 in shape and x and y and z:
                    fix = "Leave out block=, or give 1 or more along each axis."
                    problem = "threads cannot run in blocks of none"
                    self._refuse(problem, shape, f"for {(x, y, z)}", fix=fix)
            if a and b and c:
                x, y, z = -(-x // a), -(-y // b), -(-z // c)
            else:  # blocks without threads run none
                x = y = z = 0
        elif grid is not None and shape is not None:
            (x, y, z), (a, b, c) = self._dim3("grid", grid), shape
        elif grid is not None:
            self._refuse("nothing says how large the grid's blocks are", grid)
        else:
            self._refuse("nothing says how many threads run")
        if fixed and shape != fixed:
            fix = "Leave out block=, which is the kernel's."
            self._refuse("the kernel fixes its block", shape, f"block {fixed}", fix=fix)
        return x, y, z, a, b, c

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
            and (type(shared) is int and shared == 0)
        ):
            return
        both = ("block", block, limits.max_block), ("grid", grid, limits.max_grid)
        totals = zip("xyz", (wide, high, deep), strict=True)
        tests = [  # what is wrong where a number is above a limit
            *((f"{what}.{axis} is too large", given, most, what)
              for what, sizes, limit in both
              for axis, given, most in zip("xyz", sizes, limit, strict=True)),
            ("a block has too many threads", size, self.max_block_threads, "block"),
            *((f"threads along {axis} exceed a 32-bit index", total, _MAX_INDEX, "grid")
              for axis, total in totals),
            ("too many threads", wide * high * deep, _MAX_THREADS, "grid"),
        ]  # fmt: skip
        for problem, given, most, what in tests:
            if given > most:
                self._refuse(problem, given, most, fix=_SMALLER[what])
        room = max(0, limits.shared_nbytes - self.shared_nbytes)
        if not (isinstance(shared, int) and 0 <= shared <= room):
            own = f", beside the kernel's own {self.shared_nbytes} bytes"
            problem = "shared= is no number of bytes that fits into a block's shared memory"
            problem += own if self.shared_nbytes else ""
            self._refuse(problem, shared, room, fix="A kernel's own arrays need no shared=.")

    def _dim3(self, what: str, extent: Any) -> Dim3:
        sizes = (extent,) if extent.__class__ is int else extent
        if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
            self._refuse_extent(what, extent)
        return (*sizes, 1, 1)[:3]

    def _refuse_extent(self, what: str, extent: object) -> NoReturn:
        self._refuse(f"{what} must be one to three integers that are not negative", extent)

    def _refuse(self, problem: str, *values: object, fix: str = _FORMS) -> NoReturn:
        facts = dict(zip(("got", "limit"), values, strict=False))
        raise InvalidArgument(self.operation, problem, device=self.device, fix=fix, **facts)


def _whole(size: Any) -> int:
    """Return the integer that equals a size: 8.0 finds 8 in a dictionary, such as Geometries."""
    if hasattr(size, "__index__"):
        return index(size)
    if size != int(size):
        raise ValueError
    return int(size)


def integers(given: Any, index: Any = index) -> tuple[int, ...] | None:
    """Return a sequence of integers of any class as Python's; None for what is none, as a set."""
    if not (isinstance(given, Sequence) or hasattr(given, "__array__")):
        return None
    try:
        return tuple(int(index(one)) for one in given)
    except (OverflowError, TypeError, ValueError):
        return None


def as_count(given: Any) -> int:
    """Return an integer of any class as Python's; -1 for what is none, such as a bool."""
    return -1 if isinstance(given, bool) else (integers((given,)) or (-1,))[0]


def is_plain(extent: object) -> bool:
    """Return True for a part of a geometry that can be a key: it never changes its value."""
    if type(extent) is tuple:
        for size in extent:  # noqa: SIM110 - `all` of a generator takes three times as long
            if type(size) is not int:
                return False
        return True
    return extent is None or type(extent) is int

"""The functions of the kernel language but those of mathematics: places, memory, atomics.

Inside a kernel the front end replaces a call by IR nodes; these bodies run only outside, and
refuse. Their annotations are what type checkers and editors show. The tables at the end say which
node each function becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from hal_core.dtypes import Scalar, int32
from hal_core.errors import Unsupported

if TYPE_CHECKING:
    from hal_core.lang.pointers import Index, Ptr, Shared

T = TypeVar("T", bound=Scalar)


def outside(name: str) -> Unsupported:
    return Unsupported(
        f"{name}(...)",
        "it exists inside @hal.kernel functions only",
        fix="Outside a kernel use math or numpy.",
    )


def global_idx(axis: int) -> int32:
    """This thread's position among all threads of the launch; axis is 0 (x), 1 (y) or 2 (z)."""
    raise outside("global_idx")


def block_idx(axis: int) -> int32:
    """The position of this thread's block in the grid."""
    raise outside("block_idx")


def thread_idx(axis: int) -> int32:
    """This thread's position in its block."""
    raise outside("thread_idx")


def block_dim(axis: int) -> int32:
    """How many threads a block has along the axis."""
    raise outside("block_dim")


def grid_dim(axis: int) -> int32:
    """How many blocks the grid has along the axis."""
    raise outside("grid_dim")


def shared(dtype: type[T], shape: int | tuple[int, ...]) -> Shared[T]:
    """An array in the memory of the thread's block, of one to three dimensions.

    All threads of the block see the same array; its contents are undefined at the start. Written
    as `tile = hal.shared(hal.float32, (16, 16))`, outside of conditions and loops.
    """
    raise outside("shared")


def barrier() -> None:
    """Waits until all threads of the block are here; what they wrote before is seen behind it."""
    raise outside("barrier")


def atomic_add(p: Ptr[T], i: Index, value: T | float) -> T:
    """Adds to `p[i]` in one step; the old value."""
    raise outside("atomic_add")


def atomic_min(p: Ptr[T], i: Index, value: T | int) -> T:
    """Puts the smaller of the two into `p[i]` in one step; the old value. Integers only."""
    raise outside("atomic_min")


def atomic_max(p: Ptr[T], i: Index, value: T | int) -> T:
    """Puts the larger of the two into `p[i]` in one step; the old value. Integers only."""
    raise outside("atomic_max")


def atomic_and(p: Ptr[T], i: Index, value: T | int) -> T:
    """Leaves in `p[i]` the bits that `value` has too, in one step; the old value. Integers only."""
    raise outside("atomic_and")


def atomic_or(p: Ptr[T], i: Index, value: T | int) -> T:
    """Sets in `p[i]` the bits of `value` in one step; the old value. Integers only."""
    raise outside("atomic_or")


def atomic_xor(p: Ptr[T], i: Index, value: T | int) -> T:
    """Turns over in `p[i]` the bits of `value` in one step; the old value. Integers only."""
    raise outside("atomic_xor")


def atomic_exchange(p: Ptr[T], i: Index, value: T | float) -> T:
    """Puts the value into `p[i]` in one step; the old value."""
    raise outside("atomic_exchange")


def atomic_load(p: Ptr[T], i: Index) -> T:
    """`p[i]`, read in one step, where other threads change it by atomics."""
    raise outside("atomic_load")


def atomic_compare_exchange(p: Ptr[T], i: Index, expected: T | int, desired: T | int) -> T:
    """Puts `desired` into `p[i]` if `expected` is there, in one step; the old value.

    Integers only.
    """
    raise outside("atomic_compare_exchange")


def bitcast(dtype: type[T], x: Scalar | float) -> T:
    """The bits of x as a number of another dtype, which is as wide."""
    raise outside("bitcast")


def unroll(start: int, stop: int = 0, step: int = 1, /) -> Iterable[int32]:
    """`for k in hal.unroll(4)`: as range, but the body is repeated, with k a Python number.

    The arguments are known at compile time, and there are 256 turns at most.
    """
    raise outside("unroll")


SPECIALS: dict[Callable[..., object], str] = {
    function: function.__name__
    for function in (global_idx, block_idx, thread_idx, block_dim, grid_dim)
}

ATOMICS: dict[Callable[..., object], tuple[str, str]] = {
    atomic_add: ("atomic_add", "ADD"),
    atomic_min: ("atomic_min", "MIN"),
    atomic_max: ("atomic_max", "MAX"),
    atomic_and: ("atomic_and", "AND"),
    atomic_or: ("atomic_or", "OR"),
    atomic_xor: ("atomic_xor", "XOR"),
    atomic_exchange: ("atomic_exchange", "EXCHANGE"),
    atomic_load: ("atomic_load", "LOAD"),
    atomic_compare_exchange: ("atomic_compare_exchange", "CAS"),
}

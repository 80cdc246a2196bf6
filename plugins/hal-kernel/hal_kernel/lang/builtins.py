"""The functions of the kernel language, except mathematics: indices, memory, atomics, loops.

Inside a kernel the front end replaces a call by IR nodes, so these bodies run only outside of
kernels, where they raise. Type checkers and editors read their annotations. The tables at the end
say which node each function becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from hal_core.dtypes import Scalar, int32, uint64
from hal_core.errors import Unsupported

if TYPE_CHECKING:
    from hal_core.dtypes import bfloat16, float16, float32
    from hal_kernel.lang.pointers import ConstPtr, Extents, Index, Ptr

    Halves = ConstPtr[float16] | ConstPtr[bfloat16]

T = TypeVar("T", bound=Scalar)
P = TypeVar("P", bound="ConstPtr[Any]")
Order = Callable[[], None]  # the type of `hal.acquire`: a name, not a call


def outside(name: str) -> Unsupported:
    """Return the error of a call outside of a kernel."""
    return Unsupported(
        f"{name}(...)",
        "it exists inside @hal.kernel functions only",
        fix="Call it in a kernel; for numbers of the host use math or numpy.",
    )


def global_idx(axis: int) -> int32:
    """Return this thread's index among all threads of the launch; axis is 0 (x), 1 (y) or 2 (z)."""
    raise outside("global_idx")


def block_idx(axis: int) -> int32:
    """Return the index of this thread's block in the grid."""
    raise outside("block_idx")


def thread_idx(axis: int) -> int32:
    """Return this thread's index in its block."""
    raise outside("thread_idx")


def block_dim(axis: int) -> int32:
    """Return the number of threads of a block along the axis."""
    raise outside("block_dim")


def grid_dim(axis: int) -> int32:
    """Return the number of blocks of the grid along the axis."""
    raise outside("grid_dim")


def shared(dtype: type[T], shape: int | tuple[int, ...]) -> Ptr[T]:
    """Declare an array in the memory of the thread's block, of one to four dimensions.

    All threads of the block see the same array; its contents are undefined at the start. Written
    as `tile = hal.shared(hal.float32, (16, 16))`, outside of conditions and loops.
    """
    raise outside("shared")


def local(dtype: type[T], shape: int | tuple[int, ...]) -> Ptr[T]:
    """Declare an array of the thread's own, of one to four dimensions and 4096 bytes at most.

    Its contents are undefined at the start. Elements whose indices are constants are kept in
    registers. Written as `t = hal.local(hal.float32, 8)`, also in loops and functions.
    """
    raise outside("local")


def view(p: P, shape: Extents) -> P:
    """Return the same memory with a shape of one to four dimensions, row after row.

    Written as `u = hal.view(p, (height, width))`, with elements `u[y, x]`; the extents may be known
    at run time only. `row = p[k:]` is the same memory from element k on.
    """
    raise outside("view")


def barrier() -> None:
    """Wait until all threads of the block call this; then each sees what the others wrote."""
    raise outside("barrier")


def fence() -> None:
    """Order memory accesses: other threads see this thread's accesses before the call first.

    Thread A writes data, calls this and sets a flag by an atomic. If thread B reads the flag by an
    atomic, and then calls this, it sees the data of A, even in another block.
    """
    raise outside("fence")


def acquire() -> None:
    """Order an atomic, `hal.atomic_load(p, i, hal.acquire)`, before this thread's later accesses.

    These see all that another thread wrote before the `release` atomic whose value was read.
    """
    raise outside("acquire")


def release() -> None:
    """Order an atomic, `hal.atomic_store(p, i, 1, hal.release)`, after this thread's accesses.

    A thread whose `acquire` atomic reads its value then sees all that this thread wrote before.
    """
    raise outside("release")


def acq_rel() -> None:
    """Order an atomic as `acquire` and `release` together do."""
    raise outside("acq_rel")


def subgroup_size() -> int32:
    """Return the number of threads of a subgroup; the last one of a block may have fewer.

    It is a power of two up to 64: 8 or 16 on a CPU.
    """
    raise outside("subgroup_size")


def subgroup_idx() -> int32:
    """Return the index of this thread's subgroup in its block."""
    raise outside("subgroup_idx")


def subgroup_lane() -> int32:
    """Return this thread's index in its subgroup."""
    raise outside("subgroup_lane")


def shuffle(x: T | float, lane: int32 | int) -> T:
    """Return the `x` of the thread with the index `lane` in this subgroup, which must have it."""
    raise outside("shuffle")


def shuffle_xor(x: T | float, mask: int32 | int) -> T:
    """Return the `x` of the thread with the index `hal.subgroup_lane() ^ mask` in this subgroup."""
    raise outside("shuffle_xor")


def ballot(condition: bool) -> uint64:
    """Return the bits of a condition in all threads of the subgroup, bit i for thread i."""
    raise outside("ballot")


def subgroup_sum(x: T | float) -> T:
    """Return the sum of `x` over the subgroup. Floats are added in the order of a scan's tree."""
    raise outside("subgroup_sum")


def subgroup_min(x: T | float) -> T:
    """Return the least `x` of the subgroup."""
    raise outside("subgroup_min")


def subgroup_max(x: T | float) -> T:
    """Return the greatest `x` of the subgroup."""
    raise outside("subgroup_max")


def subgroup_inclusive_sum(x: T | float) -> T:
    """Return the sum of `x` over the subgroup's threads up to this one."""
    raise outside("subgroup_inclusive_sum")


def subgroup_exclusive_sum(x: T | float) -> T:
    """Return the sum of `x` over the subgroup's threads before this one; 0 for the first."""
    raise outside("subgroup_exclusive_sum")


def print(*parts: Scalar | float | str) -> None:
    """Print a line with the values of this thread, in checked mode and in the interpreter.

    Written as `hal.print("x =", x[i])`, with plain text and values; it prints spaces between them.
    Elsewhere it does nothing.
    """
    raise outside("print")


@overload
def load(p: Halves, i: Index, n: Literal[2]) -> tuple[float32, float32]: ...
@overload
def load(p: Halves, i: Index, n: Literal[4]) -> tuple[float32, float32, float32, float32]: ...
@overload
def load(p: Halves, i: Index, n: Literal[8, 16]) -> tuple[float32, ...]: ...
@overload
def load(p: ConstPtr[T], i: Index, n: Literal[2]) -> tuple[T, T]: ...
@overload
def load(p: ConstPtr[T], i: Index, n: Literal[4]) -> tuple[T, T, T, T]: ...
@overload
def load(p: ConstPtr[T], i: Index, n: Literal[8, 16]) -> tuple[T, ...]: ...
def load(p: ConstPtr[Any], i: Index, n: int) -> tuple[Any, ...]:
    """Return `n` elements, `p[i]` and those after it; `n` is 2, 4, 8 or 16.

    Written as `a, b, c, d = hal.load(p, i, 4)`; the index is a multiple of n. It is one access if
    the memory begins at a multiple of n elements, or of 16 bytes; otherwise it is one for each
    element.
    """
    raise outside("load")


@overload
def store(p: Ptr[float16] | Ptr[bfloat16], i: Index, *values: float32 | float) -> None: ...
@overload
def store(p: Ptr[T], i: Index, *values: T | float) -> None: ...
def store(p: Ptr[Any], i: Index, *values: Scalar | float) -> None:
    """Set `p[i]` and the elements after it to 2, 4, 8 or 16 values.

    Written as `hal.store(p, i, a, b, c, d)`; the index is a multiple of their number, as for
    `load`.
    """
    raise outside("store")


def load_if(condition: bool, p: ConstPtr[T], i: Index, otherwise: T | float) -> T:
    """Return `p[i]` if the condition holds, else `otherwise` without reading `p`.

    The index and `otherwise` are computed in both cases; `p[i] if c else v` computes one side.
    """
    raise outside("load_if")


def atomic_add(p: Ptr[T], i: Index, value: T | float, order: Order | None = None) -> T:
    """Add `value` to `p[i]` in one step, and return the old value."""
    raise outside("atomic_add")


def atomic_min(p: Ptr[T], i: Index, value: T | int, order: Order | None = None) -> T:
    """Set `p[i]` to `min(p[i], value)` in one step, and return the old value. Integers only."""
    raise outside("atomic_min")


def atomic_max(p: Ptr[T], i: Index, value: T | int, order: Order | None = None) -> T:
    """Set `p[i]` to `max(p[i], value)` in one step, and return the old value. Integers only."""
    raise outside("atomic_max")


def atomic_and(p: Ptr[T], i: Index, value: T | int, order: Order | None = None) -> T:
    """Set `p[i]` to `p[i] & value` in one step, and return the old value. Integers only."""
    raise outside("atomic_and")


def atomic_or(p: Ptr[T], i: Index, value: T | int, order: Order | None = None) -> T:
    """Set `p[i]` to `p[i] | value` in one step, and return the old value. Integers only."""
    raise outside("atomic_or")


def atomic_xor(p: Ptr[T], i: Index, value: T | int, order: Order | None = None) -> T:
    """Set `p[i]` to `p[i] ^ value` in one step, and return the old value. Integers only."""
    raise outside("atomic_xor")


def atomic_exchange(p: Ptr[T], i: Index, value: T | float, order: Order | None = None) -> T:
    """Set `p[i]` to `value` in one step, and return the old value."""
    raise outside("atomic_exchange")


def atomic_load(p: ConstPtr[T], i: Index, order: Order | None = None) -> T:
    """Read `p[i]` in one step, while other threads may change it by atomics.

    It costs what reading `p[i]` costs. The order is `hal.acquire`, or none.
    """
    raise outside("atomic_load")


def atomic_store(p: Ptr[T], i: Index, value: T | float, order: Order | None = None) -> None:
    """Set `p[i]` to `value` in one step, while other threads may access it by atomics.

    It costs what `p[i] = value` costs. The order is `hal.release`, or none.
    """
    raise outside("atomic_store")


def atomic_compare_exchange(
    p: Ptr[T], i: Index, expected: T | int, desired: T | int, order: Order | None = None
) -> T:
    """Set `p[i]` to `desired` if it equals `expected`, in one step, and return the old value.

    Integers only.
    """
    raise outside("atomic_compare_exchange")


@overload
def bitcast(dtype: type[T], x: Ptr[Any]) -> Ptr[T]: ...
@overload
def bitcast(dtype: type[T], x: ConstPtr[Any]) -> ConstPtr[T]: ...
@overload
def bitcast(dtype: type[T], x: Scalar | float) -> T: ...
def bitcast(dtype: type[T], x: ConstPtr[Any] | Scalar | float) -> ConstPtr[T] | T:
    """Return the bits of a number as another dtype of the same width, or memory as another dtype.

    For a float16 or bfloat16, x is a cast, `hal.float16(y)`, or an element, `p[i]`.
    """
    raise outside("bitcast")


def unroll(start: int, stop: int = 0, step: int = 1, /) -> Iterable[int]:
    """Unroll `for k in hal.unroll(4):`: each iteration has its own code, with a constant k.

    The arguments are those of `range` and known at compile time, for 256 iterations at most.
    """
    raise outside("unroll")


# order of an atomic -> a fence before it, and behind it
ORDERS: dict[Order, tuple[bool, bool]] = {
    acquire: (False, True),
    release: (True, False),
    acq_rel: (True, True),
}

# function -> kind of SPECIAL
SPECIALS: dict[Callable[..., object], str] = {
    function: function.__name__
    for function in (global_idx, block_idx, thread_idx, block_dim, grid_dim)
}

# function of subgroups -> the number of its arguments
SUBGROUPS: dict[Callable[..., object], int] = {
    **dict.fromkeys((subgroup_size, subgroup_idx, subgroup_lane), 0),
    **dict.fromkeys((ballot, subgroup_sum, subgroup_min, subgroup_max), 1),
    **dict.fromkeys((subgroup_inclusive_sum, subgroup_exclusive_sum), 1),
    **dict.fromkeys((shuffle, shuffle_xor), 2),
}

# function -> its name, and the kind of ATOMIC; CAS, LOAD and STORE are nodes of their own.
ATOMICS: dict[Callable[..., object], tuple[str, str]] = {
    atomic_add: ("atomic_add", "ADD"),
    atomic_min: ("atomic_min", "MIN"),
    atomic_max: ("atomic_max", "MAX"),
    atomic_and: ("atomic_and", "AND"),
    atomic_or: ("atomic_or", "OR"),
    atomic_xor: ("atomic_xor", "XOR"),
    atomic_exchange: ("atomic_exchange", "EXCHANGE"),
    atomic_load: ("atomic_load", "LOAD"),
    atomic_store: ("atomic_store", "STORE"),
    atomic_compare_exchange: ("atomic_compare_exchange", "CAS"),
}

"""The functions of the kernel language, except mathematics: indices, memory, atomics, loops.

Inside a kernel the front end replaces a call by IR nodes, so these bodies run only outside of
kernels, where they raise. Type checkers and editors read their annotations. The tables at the end
say which node each function becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from hal_core.dtypes import Scalar, int32
from hal_core.errors import Unsupported

if TYPE_CHECKING:
    from hal_core.lang.pointers import ConstPtr, Extents, Index, Ptr

T = TypeVar("T", bound=Scalar)
P = TypeVar("P", bound="ConstPtr[Any]")


def outside(name: str) -> Unsupported:
    """Return the error of a call outside of a kernel."""
    return Unsupported(
        f"{name}(...)",
        "it exists inside @hal.kernel functions only",
        fix="Outside a kernel use math or numpy.",
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


def print(*parts: Scalar | float | str) -> None:
    """Print a line with the values of this thread, in checked mode and in the interpreter.

    `hal.print("x =", x[i])`: plain text and values, with spaces between. Elsewhere it is no code.
    """
    raise outside("print")


def load_if(condition: bool, p: ConstPtr[T], i: Index, otherwise: T | float) -> T:
    """Return `p[i]` where the condition holds, else `otherwise`, and then `p` is not read.

    The index and `otherwise` are computed in both cases; `p[i] if c else v` computes one side.
    """
    raise outside("load_if")


def atomic_add(p: Ptr[T], i: Index, value: T | float) -> T:
    """Add `value` to `p[i]` in one step, and return the old value."""
    raise outside("atomic_add")


def atomic_min(p: Ptr[T], i: Index, value: T | int) -> T:
    """Set `p[i]` to `min(p[i], value)` in one step, and return the old value. Integers only."""
    raise outside("atomic_min")


def atomic_max(p: Ptr[T], i: Index, value: T | int) -> T:
    """Set `p[i]` to `max(p[i], value)` in one step, and return the old value. Integers only."""
    raise outside("atomic_max")


def atomic_and(p: Ptr[T], i: Index, value: T | int) -> T:
    """Set `p[i]` to `p[i] & value` in one step, and return the old value. Integers only."""
    raise outside("atomic_and")


def atomic_or(p: Ptr[T], i: Index, value: T | int) -> T:
    """Set `p[i]` to `p[i] | value` in one step, and return the old value. Integers only."""
    raise outside("atomic_or")


def atomic_xor(p: Ptr[T], i: Index, value: T | int) -> T:
    """Set `p[i]` to `p[i] ^ value` in one step, and return the old value. Integers only."""
    raise outside("atomic_xor")


def atomic_exchange(p: Ptr[T], i: Index, value: T | float) -> T:
    """Set `p[i]` to `value` in one step, and return the old value."""
    raise outside("atomic_exchange")


def atomic_load(p: Ptr[T], i: Index) -> T:
    """Read `p[i]` in one step, while other threads may change it by atomics."""
    raise outside("atomic_load")


def atomic_compare_exchange(p: Ptr[T], i: Index, expected: T | int, desired: T | int) -> T:
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

    Of a float16 or bfloat16, x is written as `hal.float16(y)` or as an element, `p[i]`.
    """
    raise outside("bitcast")


def unroll(start: int, stop: int = 0, step: int = 1, /) -> Iterable[int32]:
    """Unroll `for k in hal.unroll(4):`: each iteration has its own code, with a constant k.

    The arguments are those of `range` and known at compile time, for 256 iterations at most.
    """
    raise outside("unroll")


# function -> kind of SPECIAL
SPECIALS: dict[Callable[..., object], str] = {
    function: function.__name__
    for function in (global_idx, block_idx, thread_idx, block_dim, grid_dim)
}

# function -> its name, and the kind of ATOMIC; CAS and LOAD are lowered in their own way.
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

"""The functions of the kernel language.

Inside a kernel the front end replaces a call by IR nodes; these bodies run only outside, and
refuse. Their annotations are what type checkers and editors show. The tables at the end say which
node each function becomes, and what Python computes when all arguments are Python numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hal_core.dtypes import DTYPES, Scalar, int32
from hal_core.errors import Unsupported

if TYPE_CHECKING:
    from hal_core.pointers import Index, Ptr, Shared

T = TypeVar("T", bound=Scalar)


def _outside(name: str) -> Unsupported:
    return Unsupported(
        f"{name}(...)",
        "it exists inside @hal.kernel functions only",
        fix="Outside a kernel use math or numpy.",
    )


def global_idx(axis: int) -> int32:
    """This thread's position among all threads of the launch; axis is 0 (x), 1 (y) or 2 (z)."""
    raise _outside("global_idx")


def block_idx(axis: int) -> int32:
    """The position of this thread's block in the grid."""
    raise _outside("block_idx")


def thread_idx(axis: int) -> int32:
    """This thread's position in its block."""
    raise _outside("thread_idx")


def block_dim(axis: int) -> int32:
    """How many threads a block has along the axis."""
    raise _outside("block_dim")


def grid_dim(axis: int) -> int32:
    """How many blocks the grid has along the axis."""
    raise _outside("grid_dim")


def shared(dtype: type[T], shape: int | tuple[int, ...]) -> Shared[T]:
    """An array in the memory of the thread's block, of one to three dimensions.

    All threads of the block see the same array; its contents are undefined at the start. Written
    as `tile = hal.shared(hal.float32, (16, 16))`, outside of conditions and loops.
    """
    raise _outside("shared")


def barrier() -> None:
    """Waits until all threads of the block are here; what they wrote before is seen behind it."""
    raise _outside("barrier")


def atomic_add(p: Ptr[T], i: Index, value: T | float) -> T:
    """Adds to `p[i]` in one step; the old value."""
    raise _outside("atomic_add")


def atomic_min(p: Ptr[T], i: Index, value: T | int) -> T:
    """Puts the smaller of the two into `p[i]` in one step; the old value. Integers only."""
    raise _outside("atomic_min")


def atomic_max(p: Ptr[T], i: Index, value: T | int) -> T:
    """Puts the larger of the two into `p[i]` in one step; the old value. Integers only."""
    raise _outside("atomic_max")


def atomic_and(p: Ptr[T], i: Index, value: T | int) -> T:
    """Leaves in `p[i]` the bits that `value` has too, in one step; the old value. Integers only."""
    raise _outside("atomic_and")


def atomic_or(p: Ptr[T], i: Index, value: T | int) -> T:
    """Sets in `p[i]` the bits of `value` in one step; the old value. Integers only."""
    raise _outside("atomic_or")


def atomic_xor(p: Ptr[T], i: Index, value: T | int) -> T:
    """Turns over in `p[i]` the bits of `value` in one step; the old value. Integers only."""
    raise _outside("atomic_xor")


def atomic_exchange(p: Ptr[T], i: Index, value: T | float) -> T:
    """Puts the value into `p[i]` in one step; the old value."""
    raise _outside("atomic_exchange")


def atomic_load(p: Ptr[T], i: Index) -> T:
    """`p[i]`, read in one step, where other threads change it by atomics."""
    raise _outside("atomic_load")


def atomic_compare_exchange(p: Ptr[T], i: Index, expected: T | int, desired: T | int) -> T:
    """Puts `desired` into `p[i]` if `expected` is there, in one step; the old value.

    Integers only.
    """
    raise _outside("atomic_compare_exchange")


def bitcast(dtype: type[T], x: Scalar | float) -> T:
    """The bits of x as a number of another dtype, which is as wide."""
    raise _outside("bitcast")


def unroll(start: int, stop: int = 0, step: int = 1, /) -> Iterable[int32]:
    """`for k in hal.unroll(4)`: as range, but the body is repeated, with k a Python number.

    The arguments are known at compile time, and there are 256 turns at most.
    """
    raise _outside("unroll")


def exp(x: T) -> T:
    """e to the power x."""
    raise _outside("exp")


def exp2(x: T) -> T:
    """2 to the power x."""
    raise _outside("exp2")


def log(x: T) -> T:
    """The natural logarithm."""
    raise _outside("log")


def log2(x: T) -> T:
    """The logarithm to base 2."""
    raise _outside("log2")


def sqrt(x: T) -> T:
    """The square root."""
    raise _outside("sqrt")


def rsqrt(x: T) -> T:
    """1 / sqrt(x), faster than the two where the device has it."""
    raise _outside("rsqrt")


def sin(x: T) -> T:
    """Sine of x radians."""
    raise _outside("sin")


def cos(x: T) -> T:
    """Cosine of x radians."""
    raise _outside("cos")


def tan(x: T) -> T:
    """Tangent of x radians."""
    raise _outside("tan")


def tanh(x: T) -> T:
    """Hyperbolic tangent."""
    raise _outside("tanh")


def atan(x: T) -> T:
    """Arc tangent, in radians."""
    raise _outside("atan")


def floor(x: T) -> T:
    """The largest whole number not above x, as a float."""
    raise _outside("floor")


def ceil(x: T) -> T:
    """The smallest whole number not below x, as a float."""
    raise _outside("ceil")


def trunc(x: T) -> T:
    """x without its fraction, as a float."""
    raise _outside("trunc")


def isnan(x: Scalar) -> bool:
    """Whether x is not a number."""
    raise _outside("isnan")


def isinf(x: Scalar) -> bool:
    """Whether x is infinite."""
    raise _outside("isinf")


def isfinite(x: Scalar) -> bool:
    """Whether x is neither infinite nor NaN."""
    raise _outside("isfinite")


def popcount(x: T) -> T:
    """How many bits of an integer are set."""
    raise _outside("popcount")


def clz(x: T) -> T:
    """How many bits of an integer stand above the highest that is set; all of 0."""
    raise _outside("clz")


def ctz(x: T) -> T:
    """How many bits of an integer stand below the lowest that is set; all of 0."""
    raise _outside("ctz")


def pow(x: T, y: T) -> T:
    """x to the power y."""
    raise _outside("pow")


def atan2(y: T, x: T) -> T:
    """The angle of the point (x, y), in radians, from -pi to pi."""
    raise _outside("atan2")


def fmod(x: T, y: T) -> T:
    """The remainder of x / y with the sign of x."""
    raise _outside("fmod")


def fma(x: T, y: T, z: T) -> T:
    """x * y + z, rounded once."""
    raise _outside("fma")


def expm1(x: T) -> T:
    """exp(x) - 1, exact near 0 too."""
    raise _outside("expm1")


def log10(x: T) -> T:
    """The logarithm to base 10."""
    raise _outside("log10")


def log1p(x: T) -> T:
    """log(1 + x), exact near 0 too."""
    raise _outside("log1p")


def asin(x: T) -> T:
    """Arc sine, in radians from -pi/2 to pi/2; NaN beyond -1 to 1."""
    raise _outside("asin")


def acos(x: T) -> T:
    """Arc cosine, in radians from 0 to pi; NaN beyond -1 to 1."""
    raise _outside("acos")


def sinh(x: T) -> T:
    """Hyperbolic sine."""
    raise _outside("sinh")


def cosh(x: T) -> T:
    """Hyperbolic cosine."""
    raise _outside("cosh")


def asinh(x: T) -> T:
    """Inverse hyperbolic sine."""
    raise _outside("asinh")


def acosh(x: T) -> T:
    """Inverse hyperbolic cosine; NaN below 1."""
    raise _outside("acosh")


def atanh(x: T) -> T:
    """Inverse hyperbolic tangent; NaN beyond -1 to 1."""
    raise _outside("atanh")


def erf(x: T) -> T:
    """The error function."""
    raise _outside("erf")


def erfc(x: T) -> T:
    """1 - erf(x), exact for a large x too."""
    raise _outside("erfc")


def hypot(x: T, y: T) -> T:
    """sqrt(x * x + y * y), without an overflow on the way."""
    raise _outside("hypot")


def copysign(x: T, y: T) -> T:
    """The magnitude of x with the sign of y, also a zero's."""
    raise _outside("copysign")


class MathFunction(NamedTuple):
    """How a call is lowered whose arguments are all of one dtype."""

    op: str
    arguments: int
    fold: Callable[..., float]  # the same of Python numbers
    derived: bool = False  # no operation of the IR: written out as arithmetic
    integers: bool = False  # what it takes; else floats


def _of_a_width(x: float) -> float:
    raise TypeError(f"{x!r} has no width; write hal.int32({x!r})")


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

MATH: dict[Callable[..., object], MathFunction] = {
    exp: MathFunction("EXP", 1, math.exp),
    exp2: MathFunction("EXP2", 1, math.exp2),
    log: MathFunction("LOG", 1, math.log),
    log2: MathFunction("LOG2", 1, math.log2),
    sqrt: MathFunction("SQRT", 1, math.sqrt),
    rsqrt: MathFunction("RSQRT", 1, lambda x: 1 / math.sqrt(x)),
    sin: MathFunction("SIN", 1, math.sin),
    cos: MathFunction("COS", 1, math.cos),
    tan: MathFunction("TAN", 1, math.tan),
    tanh: MathFunction("TANH", 1, math.tanh),
    atan: MathFunction("ATAN", 1, math.atan),
    floor: MathFunction("FLOOR", 1, lambda x: math.copysign(math.floor(x), x)),
    ceil: MathFunction("CEIL", 1, lambda x: math.copysign(math.ceil(x), x)),
    trunc: MathFunction("TRUNC", 1, lambda x: math.copysign(math.trunc(x), x)),
    isnan: MathFunction("ISNAN", 1, math.isnan),
    isinf: MathFunction("ISINF", 1, math.isinf, derived=True),
    isfinite: MathFunction("ISFINITE", 1, math.isfinite, derived=True),
    popcount: MathFunction("POPCOUNT", 1, _of_a_width, derived=True, integers=True),
    clz: MathFunction("CLZ", 1, _of_a_width, derived=True, integers=True),
    ctz: MathFunction("CTZ", 1, _of_a_width, derived=True, integers=True),
    pow: MathFunction("POW", 2, math.pow),
    atan2: MathFunction("ATAN2", 2, math.atan2),
    fmod: MathFunction("FMOD", 2, math.fmod),
    expm1: MathFunction("EXPM1", 1, math.expm1, derived=True),
    log10: MathFunction("LOG10", 1, math.log10, derived=True),
    log1p: MathFunction("LOG1P", 1, math.log1p, derived=True),
    asin: MathFunction("ASIN", 1, math.asin, derived=True),
    acos: MathFunction("ACOS", 1, math.acos, derived=True),
    sinh: MathFunction("SINH", 1, math.sinh, derived=True),
    cosh: MathFunction("COSH", 1, math.cosh, derived=True),
    asinh: MathFunction("ASINH", 1, math.asinh, derived=True),
    acosh: MathFunction("ACOSH", 1, math.acosh, derived=True),
    atanh: MathFunction("ATANH", 1, math.atanh, derived=True),
    erf: MathFunction("ERF", 1, math.erf, derived=True),
    erfc: MathFunction("ERFC", 1, math.erfc, derived=True),
    hypot: MathFunction("HYPOT", 2, math.hypot, derived=True),
    copysign: MathFunction("COPYSIGN", 2, math.copysign, derived=True),
    fma: MathFunction("FMA", 3, lambda x, y, z: x * y + z),
}

MATH_NAMES = {function.__name__ for function in MATH}

# Everything a kernel calls as hal.NAME.
LANGUAGE = [
    *MATH_NAMES,
    *SPECIALS.values(),
    *(name for name, _ in ATOMICS.values()),
    "barrier",
    "bitcast",
    "shared",
    "unroll",
    *(dtype.__name__ for dtype in DTYPES.values()),
]

"""The math and bit functions of the kernel language; `builtins.py` has the others.

The table at the end says which operation each becomes, and which Python function computes it when
all arguments are Python numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from hal_core.dtypes import DTYPES, Scalar
from hal_kernel.lang.builtins import ATOMICS, ORDERS, SPECIALS, SUBGROUPS, T, outside


def exp(x: T) -> T:
    """Return e to the power x."""
    raise outside("exp")


def exp2(x: T) -> T:
    """Return 2 to the power x."""
    raise outside("exp2")


def expm1(x: T) -> T:
    """Return exp(x) - 1, accurate near 0 too."""
    raise outside("expm1")


def log(x: T) -> T:
    """Return the natural logarithm."""
    raise outside("log")


def log2(x: T) -> T:
    """Return the logarithm to base 2."""
    raise outside("log2")


def log10(x: T) -> T:
    """Return the logarithm to base 10."""
    raise outside("log10")


def log1p(x: T) -> T:
    """Return log(1 + x), accurate near 0 too."""
    raise outside("log1p")


def sqrt(x: T) -> T:
    """Return the square root."""
    raise outside("sqrt")


def rsqrt(x: T) -> T:
    """Return 1 / sqrt(x), in one instruction where the device has one."""
    raise outside("rsqrt")


def hypot(x: T, y: T) -> T:
    """Return sqrt(x * x + y * y), without overflow of the squares."""
    raise outside("hypot")


def pow(x: T, y: T) -> T:
    """Return x to the power y."""
    raise outside("pow")


def sin(x: T) -> T:
    """Return the sine of x radians."""
    raise outside("sin")


def cos(x: T) -> T:
    """Return the cosine of x radians."""
    raise outside("cos")


def tan(x: T) -> T:
    """Return the tangent of x radians."""
    raise outside("tan")


def asin(x: T) -> T:
    """Return the arc sine, in radians from -pi/2 to pi/2; NaN beyond -1 to 1."""
    raise outside("asin")


def acos(x: T) -> T:
    """Return the arc cosine, in radians from 0 to pi; NaN beyond -1 to 1."""
    raise outside("acos")


def atan(x: T) -> T:
    """Return the arc tangent, in radians."""
    raise outside("atan")


def atan2(y: T, x: T) -> T:
    """Return the angle of the point (x, y), in radians from -pi to pi."""
    raise outside("atan2")


def sinh(x: T) -> T:
    """Return the hyperbolic sine."""
    raise outside("sinh")


def cosh(x: T) -> T:
    """Return the hyperbolic cosine."""
    raise outside("cosh")


def tanh(x: T) -> T:
    """Return the hyperbolic tangent."""
    raise outside("tanh")


def asinh(x: T) -> T:
    """Return the inverse hyperbolic sine."""
    raise outside("asinh")


def acosh(x: T) -> T:
    """Return the inverse hyperbolic cosine; NaN below 1."""
    raise outside("acosh")


def atanh(x: T) -> T:
    """Return the inverse hyperbolic tangent; NaN beyond -1 to 1."""
    raise outside("atanh")


def erf(x: T) -> T:
    """Return the error function of x."""
    raise outside("erf")


def erfc(x: T) -> T:
    """Return 1 - erf(x), accurate for a large x too."""
    raise outside("erfc")


def floor(x: T) -> T:
    """Return the largest whole number not above x, as a float."""
    raise outside("floor")


def ceil(x: T) -> T:
    """Return the smallest whole number not below x, as a float."""
    raise outside("ceil")


def trunc(x: T) -> T:
    """Return x without its fraction, as a float."""
    raise outside("trunc")


def fmod(x: T, y: T) -> T:
    """Return the remainder of x / y with the sign of x."""
    raise outside("fmod")


def fma(x: T, y: T, z: T) -> T:
    """Return x * y + z, rounded once."""
    raise outside("fma")


def copysign(x: T, y: T) -> T:
    """Return the magnitude of x with the sign of y; the sign of -0.0 counts."""
    raise outside("copysign")


def isnan(x: Scalar) -> bool:
    """Tell whether x is NaN."""
    raise outside("isnan")


def isinf(x: Scalar) -> bool:
    """Tell whether x is infinite."""
    raise outside("isinf")


def isfinite(x: Scalar) -> bool:
    """Tell whether x is neither infinite nor NaN."""
    raise outside("isfinite")


def popcount(x: T) -> T:
    """Return the number of set bits of an integer."""
    raise outside("popcount")


def clz(x: T) -> T:
    """Return the number of zero bits above the highest set bit of an integer; all bits for 0."""
    raise outside("clz")


def ctz(x: T) -> T:
    """Return the number of zero bits below the lowest set bit of an integer; all bits for 0."""
    raise outside("ctz")


def truncdiv(x: T, y: T) -> T:
    """Return x / y of integers, rounded towards zero; `//` rounds down."""
    raise outside("truncdiv")


def truncmod(x: T, y: T) -> T:
    """Return x - y * truncdiv(x, y), which has the sign of x; that of `x % y` is y's."""
    raise outside("truncmod")


class MathFunction(NamedTuple):
    """The lowering of a function whose arguments are all of one dtype."""

    op: str
    arguments: int
    fold: Callable[..., float]  # the function for Python numbers
    derived: bool = False  # the IR has no such operation: it is written out as arithmetic
    integers: bool = False  # True: takes integers; False: floats


# The bits of a number depend on its dtype, and a bare number has none.
def _of_a_width(x: float) -> float:
    raise TypeError(f"{x!r} has no width; write hal.int32({x!r})")


def _truncdiv(x: float, y: float) -> int:
    if not (isinstance(x, int) and isinstance(y, int)):
        raise TypeError("it takes integers")
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


# A function of bare numbers alone has no dtype to compute in, so Python computes it, in double
# precision; the result may differ from the device's in rounding.
MATH: dict[Callable[..., object], MathFunction] = {
    exp: MathFunction("EXP", 1, math.exp),
    exp2: MathFunction("EXP2", 1, math.exp2),
    expm1: MathFunction("EXPM1", 1, math.expm1, derived=True),
    log: MathFunction("LOG", 1, math.log),
    log2: MathFunction("LOG2", 1, math.log2),
    log10: MathFunction("LOG10", 1, math.log10, derived=True),
    log1p: MathFunction("LOG1P", 1, math.log1p, derived=True),
    sqrt: MathFunction("SQRT", 1, math.sqrt),
    rsqrt: MathFunction("RSQRT", 1, lambda x: 1 / math.sqrt(x)),
    hypot: MathFunction("HYPOT", 2, math.hypot, derived=True),
    pow: MathFunction("POW", 2, math.pow),
    sin: MathFunction("SIN", 1, math.sin),
    cos: MathFunction("COS", 1, math.cos),
    tan: MathFunction("TAN", 1, math.tan),
    asin: MathFunction("ASIN", 1, math.asin, derived=True),
    acos: MathFunction("ACOS", 1, math.acos, derived=True),
    atan: MathFunction("ATAN", 1, math.atan),
    atan2: MathFunction("ATAN2", 2, math.atan2),
    sinh: MathFunction("SINH", 1, math.sinh, derived=True),
    cosh: MathFunction("COSH", 1, math.cosh, derived=True),
    tanh: MathFunction("TANH", 1, math.tanh),
    asinh: MathFunction("ASINH", 1, math.asinh, derived=True),
    acosh: MathFunction("ACOSH", 1, math.acosh, derived=True),
    atanh: MathFunction("ATANH", 1, math.atanh, derived=True),
    erf: MathFunction("ERF", 1, math.erf, derived=True),
    erfc: MathFunction("ERFC", 1, math.erfc, derived=True),
    floor: MathFunction("FLOOR", 1, lambda x: math.copysign(math.floor(x), x)),
    ceil: MathFunction("CEIL", 1, lambda x: math.copysign(math.ceil(x), x)),
    trunc: MathFunction("TRUNC", 1, lambda x: math.copysign(math.trunc(x), x)),
    fmod: MathFunction("FMOD", 2, math.fmod),
    fma: MathFunction("FMA", 3, lambda x, y, z: x * y + z),
    copysign: MathFunction("COPYSIGN", 2, math.copysign, derived=True),
    isnan: MathFunction("ISNAN", 1, math.isnan),
    isinf: MathFunction("ISINF", 1, math.isinf, derived=True),
    isfinite: MathFunction("ISFINITE", 1, math.isfinite, derived=True),
    popcount: MathFunction("POPCOUNT", 1, _of_a_width, derived=True, integers=True),
    clz: MathFunction("CLZ", 1, _of_a_width, derived=True, integers=True),
    ctz: MathFunction("CTZ", 1, _of_a_width, derived=True, integers=True),
    truncdiv: MathFunction("TRUNCDIV", 2, _truncdiv, integers=True),
    truncmod: MathFunction("TRUNCMOD", 2, lambda x, y: x - y * _truncdiv(x, y), integers=True),
}

MATH_NAMES = {function.__name__ for function in MATH}

# Everything that a kernel can call as hal.NAME.
LANGUAGE = [
    *MATH_NAMES,
    *SPECIALS.values(),
    *(name for name, _ in ATOMICS.values()),
    *(function.__name__ for function in SUBGROUPS),
    *(function.__name__ for function in ORDERS),
    *("barrier", "bitcast", "fence", "load", "load_if", "local", "print", "shared", "store"),
    *("unroll", "view"),
    *(dtype.__name__ for dtype in DTYPES.values()),
]

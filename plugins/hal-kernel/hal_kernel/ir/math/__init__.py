"""Formulas of plain arithmetic for math functions, one module for each family."""

from __future__ import annotations

from collections.abc import Callable

from hal_kernel.ir.math.arctangent import acos, asin, atan, atan2
from hal_kernel.ir.math.bits import clz, ctz, popcount
from hal_kernel.ir.math.circular import cos, sin, tan
from hal_kernel.ir.math.error_function import erf, erfc
from hal_kernel.ir.math.exponential import exp, exp2, expm1
from hal_kernel.ir.math.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from hal_kernel.ir.math.logarithm import INFINITY, log, log1p, log2, log10
from hal_kernel.ir.math.pi_multiples import LARGE
from hal_kernel.ir.math.power import hypot, power
from hal_kernel.ir.math.remainder import NEAR as NEAREST
from hal_kernel.ir.math.remainder import fmod
from hal_kernel.ir.math.value import Value

Formulas = dict[str, Callable[..., Value]]

# Formulas of operations of the IR, for languages that lack these operations.
FORMULAS: Formulas = {
    "EXP": exp, "EXP2": exp2, "LOG": log, "LOG2": log2, "SIN": sin, "COS": cos, "TAN": tan,
    "TANH": tanh, "ATAN": atan, "ATAN2": atan2, "POW": power, "FMOD": fmod,
}  # fmt: skip

# Shorter ones of float64, for arguments that are not far from 0 or from each other: the value, and
# a size that is less than a limit where it is right.
NEAR: dict[str, Callable[..., tuple[Value, Value, float]]] = {
    **{
        op: lambda x, formula=formula: (formula(x, far=False), abs(x), LARGE)
        for op, formula in (("SIN", sin), ("COS", cos), ("TAN", tan))
    },
    "FMOD": lambda x, y: (fmod(x, y, far=False), abs(x) / abs(y), NEAREST),
}

# Formulas of functions that are no operation of the IR. The front end writes them out, so that they
# give the same result on every device, and no device language needs to have them.
DERIVED: Formulas = {
    "ACOS": acos, "ACOSH": acosh, "ASIN": asin, "ASINH": asinh, "ATANH": atanh, "COSH": cosh,
    "ERF": erf, "ERFC": erfc, "EXPM1": expm1, "HYPOT": hypot, "LOG10": log10, "LOG1P": log1p,
    "SINH": sinh, "COPYSIGN": Value.with_sign_of,
    "ISFINITE": lambda x: abs(x) < INFINITY, "ISINF": lambda x: abs(x).equals(INFINITY),
    "CLZ": clz, "CTZ": ctz, "POPCOUNT": popcount,
}  # fmt: skip

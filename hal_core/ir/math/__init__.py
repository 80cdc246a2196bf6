"""Float functions as formulas of plain arithmetic, one module a family."""

from __future__ import annotations

from collections.abc import Callable

from hal_core.ir.math.arctangent import atan, atan2
from hal_core.ir.math.circular import cos, sin, tan
from hal_core.ir.math.exponential import exp, exp2, tanh
from hal_core.ir.math.logarithm import log, log2
from hal_core.ir.math.power import power
from hal_core.ir.math.remainder import fmod
from hal_core.ir.math.value import Value

FORMULAS: dict[str, Callable[..., Value]] = {
    "EXP": exp, "EXP2": exp2, "LOG": log, "LOG2": log2, "SIN": sin, "COS": cos, "TAN": tan,
    "TANH": tanh, "ATAN": atan, "ATAN2": atan2, "POW": power, "FMOD": fmod,
}  # fmt: skip

"""Write numbers as text from which a compiler reads the same bits."""

from __future__ import annotations

import math
import struct

from hal_core.dtypes import DType, float32
from hal_kernel.ir.fold.constants import rounded


def c_float(value: float, dtype: DType, suffix: str, infinity: str, nan: str) -> str:
    """Return the shortest decimal that gives these bits, or the language's `infinity` or `nan`."""
    number = rounded(value, dtype)
    if number != number:
        return nan
    if number in (float("inf"), -float("inf")):
        return infinity if number > 0 else f"-{infinity}"
    text = repr(number)
    if dtype is float32:
        candidates = (f"{number:.{digits}g}" for digits in range(6, 10))
        text = next(text for text in candidates if rounded(float(text), dtype) == number)
    if not any(mark in text for mark in ".e"):
        text += ".0"
    return text + suffix


def c_integer(value: int, dtype: DType, suffix: str) -> str:
    """Return an integer for C, which has no negative literals: the least becomes `-MAX - 1`."""
    if value == dtype.min and dtype.kind == "i" and dtype.itemsize >= 4:
        return f"(-{-value - 1}{suffix} - 1)"
    return f"{value}{suffix}"


def llvm_float(value: float, dtype: DType) -> str:
    """Return a decimal where it is exact, else the bits of a double, as LLVM reads floats too."""
    number = rounded(value, dtype)
    text = f"{number:.6e}"
    if float(text) == number and abs(number) != math.inf:
        return text
    return f"0x{struct.pack('>d', number).hex().upper()}"


def power_of_two(value: object) -> int | None:
    """Return k where `value` is 2**k, else None."""
    if isinstance(value, int) and value > 0 and value & (value - 1) == 0:
        return value.bit_length() - 1
    return None

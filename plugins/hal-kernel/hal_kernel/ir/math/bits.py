"""The formulas of popcount, clz and ctz, in the form that compilers turn into one instruction."""

from __future__ import annotations

from hal_core.dtypes import DTYPES
from hal_kernel.ir.math.value import Value


def popcount(x: Value) -> Value:
    """Count the bits that are set, first in pairs, then in fours, in bytes, and in all."""
    return _of_same_sign(_count(_unsigned(x)), x)


def clz(x: Value) -> Value:
    """Count the bits above the highest that is set: set all bits below it, and count the others."""
    width, bits = 8 * x.dtype.itemsize, _unsigned(x)
    step = 1
    while step < width:
        bits = bits | (bits >> step)
        step *= 2
    return _of_same_sign(width - _count(bits), x)


def ctz(x: Value) -> Value:
    """Count the bits below the lowest that is set: `~x & (x - 1)` has these and no others."""
    bits = _unsigned(x)
    return _of_same_sign(_count(bits.apply("NOT") & (bits - 1)), x)


def _count(bits: Value) -> Value:
    width = 8 * bits.dtype.itemsize
    every = (1 << width) - 1  # 0x55.. is a third of it, 0x33.. a fifth, 0x0f.. a 17th
    bits = bits - ((bits >> 1) & (every // 3))
    bits = (bits & (every // 5)) + ((bits >> 2) & (every // 5))
    bits = (bits + (bits >> 4)) & (every // 17)
    return bits if width == 8 else (bits * (every // 255)) >> (width - 8)


def _unsigned(x: Value) -> Value:
    return x if x.dtype.kind == "u" else x.bitcast(DTYPES[f"uint{8 * x.dtype.itemsize}"])


def _of_same_sign(bits: Value, x: Value) -> Value:
    return bits if x.dtype.kind == "u" else bits.bitcast(x.dtype)

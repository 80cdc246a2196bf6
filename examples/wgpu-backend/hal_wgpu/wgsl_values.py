"""What a node's value is in WGSL: types, literals, operators and casts.

Integers of 8 and 16 bits are computed in 32 and wrapped. The 16 bits of a float16 and a bfloat16,
which are stored and not computed with, are a u32.
"""

from __future__ import annotations

import math
from typing import Any

from hal_kernel.ir import UOp
from hal_kernel.ir.uop import COMPARISON, dtype_of

from hal_core.dtypes import DType

TYPES = {
    "bool": "u32", "int8": "i32", "int16": "i32", "int32": "i32",
    "uint8": "u32", "uint16": "u32", "uint32": "u32", "float32": "f32",
    "float16": "u32", "bfloat16": "u32",
}  # fmt: skip

HALVES = ("float16", "bfloat16")
OPERATORS = {
    "ADD": "+", "SUB": "-", "MUL": "*", "DIV": "/", "AND": "&", "OR": "|", "XOR": "^",
    "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!=",
}  # fmt: skip
CALLS = {
    "SQRT": "sqrt", "RSQRT": "inverseSqrt", "EXP": "hal_exp", "EXP2": "exp2", "SIN": "sin",
    "COS": "cos", "TAN": "tan", "TANH": "hal_tanh", "FLOOR": "floor", "CEIL": "ceil",
    "TRUNC": "trunc", "ROUND": "round", "ISNAN": "hal_isnan", "POW": "hal_pow", "FMA": "fma",
    "FMOD": "hal_fmod", "ABS": "abs", "MIN": "min", "MAX": "max",
}  # fmt: skip


def width(dtype: DType | None) -> int:
    """Bits of an element in memory."""
    return dtype.itemsize * 8 if dtype else 0


def local(dtype: DType | None) -> str:
    """The type of a value; the same in shared memory."""
    return "bool" if dtype and dtype.name == "bool" else TYPES[dtype.name if dtype else ""]


def to_bits(dtype: DType | None, text: str) -> str:
    """What atomics take: floats are words to them."""
    return f"bitcast<u32>({text})" if local(dtype) == "f32" else text


def from_bits(dtype: DType | None, text: str) -> str:
    return f"bitcast<f32>({text})" if local(dtype) == "f32" else text


def literal(dtype: DType | None, value: Any) -> str:
    kind = local(dtype)
    if kind == "bool":
        return "true" if value else "false"
    if kind != "f32":
        return f"{kind}({value})"
    if math.isnan(value):
        return "hal_float(0x7fc00000u)"
    if math.isinf(value):
        return f"hal_float(0x{'f' if value < 0 else '7'}f800000u)"
    return f"f32({float(value)!r})"


def wrapped(dtype: DType | None, text: str) -> str:
    """An integer of 32 bits, cut to the dtype's width; others as they are."""
    bits, kind = width(dtype), local(dtype)
    if kind == "i32" and bits < 32:
        return f"extractBits({text}, 0u, {bits}u)"
    return f"({text}) & 0x{(1 << bits) - 1:x}u" if kind == "u32" and bits < 32 else text


def value(uop: UOp, sources: list[str]) -> str:
    """A node's value, of the values of its sources."""
    dtype, given = dtype_of(uop), dtype_of(uop.src[-1])
    if uop.op == "CAST":
        return cast(dtype_of(uop.src[0]), dtype, *sources)
    if uop.op == "BITCAST":
        return wrapped(dtype, f"bitcast<{local(dtype)}>({sources[0]})")
    if uop.op == "WHERE":
        condition, yes, no = sources
        return f"select({no}, {yes}, {condition})"
    if local(given) == "bool":
        return of_bools(uop.op, sources)
    if local(given) == "f32":
        return of_floats(uop.op, sources)
    return wrapped(dtype, of_integers(uop.op, given, sources))


def of_bools(op: str, sources: list[str]) -> str:
    if op == "NOT":
        return f"!{sources[0]}"
    if op in COMPARISON:  # in WGSL bools have no order
        sources = [f"u32({source})" for source in sources]
    return operation("NE" if op == "XOR" else op, sources)


def of_floats(op: str, sources: list[str]) -> str:
    if op == "NEG":
        return f"-({sources[0]})"
    if op == "NE":
        return f"!({sources[0]} == {sources[1]})"  # naga's != is false for a NaN
    if op in ("MIN", "MAX"):
        op = f"hal_{op.lower()}"
    return operation(op, sources)


def of_integers(op: str, dtype: DType, sources: list[str]) -> str:
    kind = local(dtype)
    if kind == "u32":  # where both roundings are the same
        op = {"TRUNCDIV": "FLOORDIV", "TRUNCMOD": "MOD"}.get(op, op)
    if op in ("FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD"):
        op = f"hal_{op.lower()}_{kind}"
    elif op in ("SHL", "SHR"):
        sign = "<<" if op == "SHL" else ">>"
        return f"{sources[0]} {sign} (u32({sources[1]}) & {width(dtype) - 1}u)"
    elif op == "NEG":
        return f"0u - {sources[0]}" if kind == "u32" else f"-({sources[0]})"
    elif op == "NOT":
        return f"~{sources[0]}"
    return operation(op, sources)


def operation(op: str, sources: list[str]) -> str:
    if op in OPERATORS:
        return f"{sources[0]} {OPERATORS[op]} {sources[1]}"
    return f"{CALLS.get(op, op)}({', '.join(sources)})"


def cast(old: DType, new: DType, text: str) -> str:
    """The table of kernel-language.md: wraps, saturates, rounds half to even; a NaN is true."""
    before, after = local(old), local(new)
    if old.name in HALVES:
        return f"hal_{old.name}_to_f32({text})"
    if new.name in HALVES:
        return f"hal_f32_to_{new.name}({text})"
    if after == "bool":
        return text if before == "bool" else f"!({text} == {before}(0))"
    if before == "f32" and after != "f32":
        limits = f"{after}({new.min}), {after}({new.max})"
        return f"clamp(hal_f32_to_{after}({text}), {limits})"
    return f"{after}({text})" if after == "f32" else wrapped(new, f"{after}({text})")

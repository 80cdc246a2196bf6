"""What each instruction of PTX computes, on columns of threads. Source: PTX ISA, section 9.7."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hal_core.dtypes import bfloat16, float32
from hal_kernel.interpreter.casts import cast
from hal_kernel.interpreter.operations import fma

Array = npt.NDArray[Any]
Function = Callable[..., Array]

TYPES: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(bool),
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"{kind}{bits}": np.dtype(f"u{bits // 8}") for kind in "ub" for bits in (8, 16, 32, 64)},
    "f16": np.dtype("f2"), "bf16": np.dtype("u2"), "f32": np.dtype("f4"), "f64": np.dtype("f8"),
}  # fmt: skip

_ARITHMETIC: dict[str, Function] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "mul.lo": np.multiply,
    "min": np.minimum, "max": np.maximum, "neg": np.negative, "abs": np.abs,
    "div.rn": np.divide, "sqrt.rn": np.sqrt, "fma.rn": fma,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
}  # fmt: skip
_COMPARISONS: dict[str, Function] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_ROUNDING: dict[str, Function] = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip


def _divide(a: Array, b: Array) -> Array:
    """Truncates."""
    quotient = a // b
    return np.asarray(quotient + ((a % b != 0) & ((a < 0) != (b < 0))))


def _rest(a: Array, b: Array) -> Array:
    return np.asarray(a - _divide(a, b) * b)


def fault_of_division(name: str, values: Sequence[Array]) -> str | None:
    """What PTX leaves open."""
    if not re.match(r"(div|rem)\.[su]", name):
        return None
    a, b = values
    if not b.all():
        return "division by zero"
    if name[4] == "s" and ((a == np.iinfo(a.dtype).min) & (b == -1)).any():
        return "the quotient has no place in its type"
    return None


def _shifted(function: Function, bits: int) -> Function:
    def shift(a: Array, amount: Array) -> Array:
        within = np.minimum(amount, bits - 1).astype(a.dtype)
        empty = amount >= bits if a.dtype.kind == "u" else np.zeros(amount.shape, bool)
        return np.where(empty, np.zeros_like(a), function(a, within))

    return shift


def _to_integer(kind: str, source: str) -> Function:
    dtype = TYPES[kind]
    limits = np.iinfo(dtype)
    # A NaN from float64 or to 64 bits is no zero.
    nan = 0 if source == "f32" and dtype.itemsize == 4 else 1 << (8 * dtype.itemsize - 1)

    def convert(value: Array) -> Array:
        whole = np.trunc(value.astype(np.float64))
        small, large = whole < limits.min, whole >= float(limits.max)
        inside = np.where(small | large | np.isnan(whole), 0.0, whole).astype(dtype)
        clamped = np.where(small, limits.min, np.where(large, limits.max, inside)).astype(dtype)
        odd = np.array([nan], f"u{dtype.itemsize}").view(dtype)
        return np.where(np.isnan(value), odd, clamped)

    return convert


def _to_bfloat16(value: Array) -> Array:
    return cast(value, float32, bfloat16)


# Name of the instruction -> what it takes, what it gives, and the function.
Row = tuple[tuple[str, ...], str, Function]
_RULES: list[tuple[re.Pattern[str], Callable[..., Row]]] = []


def _rule(pattern: str) -> Callable[[Callable[..., Row]], Callable[..., Row]]:
    def add(function: Callable[..., Row]) -> Callable[..., Row]:
        _RULES.append((re.compile(pattern), function))
        return function

    return add


@cache
def compute(name: str) -> Row:
    """Raises: KeyError for an instruction that the renderer has no business with."""
    for pattern, rule in _RULES:
        found = pattern.fullmatch(name)
        if found:
            return rule(*found.groups())
    raise KeyError(name)


@_rule(r"(add|sub|mul)(?:\.rn)?\.(f32|f64)")
@_rule(r"(add|sub|mul\.lo|min|max)\.([su]32|[su]64)")
@_rule(r"(div\.rn)\.(f32|f64)")
@_rule(r"(and|or|xor)\.(pred|b32|b64)")
def _binary(op: str, kind: str) -> Row:
    return (kind, kind), kind, _ARITHMETIC[op]


@_rule(r"(neg|abs|sqrt\.rn)\.(f32|f64)")
@_rule(r"(neg)\.(s32|s64)")
@_rule(r"(not)\.(pred|b32|b64)")
def _unary(op: str, kind: str) -> Row:
    return (kind,), kind, _ARITHMETIC[op]


@_rule(r"(fma\.rn)\.(f32|f64)")
def _fma(op: str, kind: str) -> Row:
    return (kind,) * 3, kind, _ARITHMETIC[op]


@_rule(r"(div|rem)\.([su](?:32|64))")
def _division(op: str, kind: str) -> Row:
    return (kind, kind), kind, _divide if op == "div" else _rest


@_rule(r"mad\.lo\.s32")
def _mad() -> Row:
    return ("s32",) * 3, "s32", lambda a, b, c: a * b + c


@_rule(r"mul\.wide\.([su])32")
def _wide(sign: str) -> Row:
    wide = TYPES[f"{sign}64"]
    return (f"{sign}32",) * 2, f"{sign}64", lambda a, b: a.astype(wide) * b.astype(wide)


@_rule(r"(shl)\.(b32|b64)")
@_rule(r"(shr)\.([su]32|[su]64)")
def _shift(op: str, kind: str) -> Row:
    function = np.left_shift if op == "shl" else np.right_shift
    return (kind, "u32"), kind, _shifted(function, 8 * TYPES[kind].itemsize)


@_rule(r"(bfe)\.(s32)")
def _signed_field(op: str, kind: str) -> Row:
    def extract(a: Array, start: Array, length: Array) -> Array:
        left = np.int32(32) - (start + length).astype(np.int32)
        return (a << left) >> (np.int32(32) - length.astype(np.int32))

    return (kind, "u32", "u32"), kind, extract


@_rule(r"setp\.(lt|le|gt|ge|eq|ne)\.([su]32|[su]64|f32|f64|b32|b64)")
def _test(op: str, kind: str) -> Row:
    def compare(a: Array, b: Array) -> Array:
        result = _COMPARISONS[op](a, b)
        # Without a u behind it a comparison with a NaN is false, `ne` too.
        return result & (a == a) & (b == b) if kind[0] == "f" else result

    return (kind, kind), "pred", compare


@_rule(r"setp\.(neu|nan)\.(f32|f64)")
def _test_unordered(op: str, kind: str) -> Row:
    if op == "neu":
        return (kind, kind), "pred", np.not_equal
    return (kind, kind), "pred", lambda a, b: np.isnan(a) | np.isnan(b)


@_rule(r"selp\.(b32|b64|f32|f64)")
def _select(kind: str) -> Row:
    return (kind, kind, "pred"), kind, lambda a, b, c: np.where(c, a, b)


@_rule(r"mov\.(pred|b16|b32|b64|u32|f32|f64)")
def _move(kind: str) -> Row:
    return (kind,), kind, np.array


@_rule(r"cvt\.(u16)\.(u32)")
@_rule(r"cvt\.([su](?:32|64))\.([su](?:8|16|32|64))")
def _between_integers(gives: str, takes: str) -> Row:
    return (takes,), gives, lambda a: a.astype(TYPES[gives])


@_rule(r"cvt\.rn\.(f32|f64)\.([su](?:32|64))")
def _from_integer(gives: str, takes: str) -> Row:
    return (takes,), gives, lambda a: a.astype(TYPES[gives])


@_rule(r"cvt\.rzi\.([su](?:32|64))\.(f32|f64)")
def _from_float(gives: str, takes: str) -> Row:
    return (takes,), gives, _to_integer(gives, takes)


@_rule(r"cvt\.(rni|rzi|rmi|rpi)\.(f32|f64)\.(f32|f64)")
def _round(mode: str, gives: str, takes: str) -> Row:
    if gives != takes:
        raise KeyError(mode)
    return (takes,), gives, _ROUNDING[mode]


@_rule(r"cvt\.(rn\.f32\.f64|f64\.f32|rn\.f16\.f32|f32\.f16|rn\.bf16\.f32)")
def _between_floats(name: str) -> Row:
    *_, gives, takes = name.split(".")
    function: Function = _to_bfloat16 if gives == "bf16" else lambda a: a.astype(TYPES[gives])
    return (takes,), gives, function

"""Write CAST and BITCAST in PTX."""

from __future__ import annotations

from hal_core.dtypes import STORAGE_DTYPES, DType, bfloat16, bool_, float16, float32
from hal_cuda.render.text import Registers, kind_of, literal, type_of


def cast(to: Registers, value: str, source: DType, target: DType) -> str:
    """Return `value` as `target`: floats truncate and saturate, integers wrap, NaN becomes 0."""
    if source is target:
        return value
    if target is bool_:
        zero = literal(0, source)
        return to.test("neu" if source.is_float else "ne", type_of(source), value, zero)
    if source is bool_:
        return to.select(value, kind_of(target), literal(1, target), literal(0, target))
    if source in (float16, bfloat16):
        if source is float16:
            return to.let("cvt.f32.f16", "f32", value)
        bits = to.let("shl.b32", "b32", to.let("cvt.u32.u16", "b32", value), "16")
        return to.let("mov.b32", "f32", bits)
    if target in (float16, bfloat16):
        return to.let(f"cvt.rn.{'f16' if target is float16 else 'bf16'}.f32", "b16", value)
    if source.is_float:
        if target.is_float:
            instruction = "cvt.f64.f32" if target.itemsize == 8 else "cvt.rn.f32.f64"
            return to.let(instruction, kind_of(target), value)
        return _float_to_integer(to, value, source, target)
    if target.is_float:
        return to.let(f"cvt.rn.{type_of(target)}.{type_of(source)}", kind_of(target), value)
    if source.itemsize == 8 > target.itemsize:
        return to.narrow(to.let("cvt.u32.u64", "b32", value), target)
    if target.itemsize == 8 > source.itemsize:
        return to.let(f"cvt.{'s64.s32' if source.kind == 'i' else 'u64.u32'}", "b64", value)
    fits = target.min <= source.min and source.max <= target.max
    return value if fits else to.narrow(value, target)


def bitcast(to: Registers, value: str, source: DType, target: DType) -> str:
    """Return the bits of `value` as `target`."""
    if source in STORAGE_DTYPES and target not in STORAGE_DTYPES:
        return to.narrow(to.let("cvt.u32.u16", "b32", value), target)
    if target in STORAGE_DTYPES and source not in STORAGE_DTYPES:
        return to.let("cvt.u16.u32", "b16", value)
    if kind_of(source) != kind_of(target):
        if value.startswith(("0f", "0d")):  # a literal, written as its bits
            bits = int(value[2:], 16)
            return literal(bits - 2 ** (8 * target.itemsize) * (bits > target.max), target)
        return to.let(f"mov.b{8 * target.itemsize}", kind_of(target), value)
    return value if source is target or target in STORAGE_DTYPES else to.narrow(value, target)


def _float_to_integer(to: Registers, value: str, source: DType, target: DType) -> str:
    # cvt saturates to 32 or 64 bits. It turns a NaN into 0 only from float32 to 32 bits.
    kind, takes = type_of(target), type_of(source)
    result = to.let(f"cvt.rzi.{kind}.{takes}", kind_of(target), value)
    if source is not float32 or target.itemsize == 8:
        nan = to.test("nan", takes, value, value)
        result = to.select(nan, kind_of(target), "0", result)
    if target.itemsize < 4:
        result = to.let(f"min.{kind}", "b32", result, literal(target.max, target))
        if target.kind == "i":
            result = to.let(f"max.{kind}", "b32", result, literal(target.min, target))
    return result

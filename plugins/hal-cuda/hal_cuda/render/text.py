"""Write registers, literals and the names of types in PTX.

Integers of 8 and 16 bits are kept in 32-bit registers, sign- or zero-extended: `narrow` follows
every operation whose result may leave their range. A bool is a predicate, and a byte in memory.
"""

from __future__ import annotations

import struct

from hal_core.dtypes import DType, bool_
from hal_kernel.ir.fold.constants import rounded

_PREFIXES = {"pred": "%p", "b16": "%h", "b32": "%r", "b64": "%rd", "f32": "%f", "f64": "%fd"}


def kind_of(dtype: DType) -> str:
    """Return the kind of register that holds a value of `dtype`."""
    if dtype is bool_:
        return "pred"
    if dtype.is_float and dtype.itemsize > 2:
        return f"f{8 * dtype.itemsize}"
    if dtype.is_float:
        return "b16"
    return "b64" if dtype.itemsize == 8 else "b32"


def type_of(dtype: DType) -> str:
    """Return the type of an instruction that computes with `dtype`."""
    kind = kind_of(dtype)
    return {"i": "s", "u": "u"}[dtype.kind] + kind[1:] if dtype.is_integer else kind


def memory_type_of(dtype: DType) -> str:
    """Return the type of an element of `dtype` in memory."""
    if dtype is bool_:
        return "u8"
    if dtype.is_integer:
        return f"{'s' if dtype.kind == 'i' else 'u'}{8 * dtype.itemsize}"
    return kind_of(dtype)


def literal(value: float, dtype: DType) -> str:
    """Return a number as an operand; floats are written as their bits."""
    if dtype is bool_:
        return "-1" if value else "0"  # PTX converts a number other than 0 to true
    if dtype.is_float:
        short = dtype.itemsize == 4
        bits = struct.pack(">f" if short else ">d", rounded(value, dtype)).hex().upper()
        return f"{'0f' if short else '0d'}{bits}"
    return str(int(value)) if abs(value) < 2**63 else f"0x{int(value) % 2**64:016X}"


class Registers:
    """Write instructions, each with a new register for its result."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts = dict.fromkeys(_PREFIXES, 0)
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append(f"    {text};")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def name(self, word: str) -> str:
        """Return a new name for a label or a variable; no word of PTX starts with a dollar."""
        self._names += 1
        return f"${word}{self._names}"

    def register(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"{_PREFIXES[kind]}{self.counts[kind]}"

    def let(self, instruction: str, kind: str, *operands: str) -> str:
        """Write an instruction and return the register of its result."""
        result = self.register(kind)
        self.line(f"{instruction} {', '.join((result, *operands))}")
        return result

    def test(self, comparison: str, kind: str, a: str, b: str) -> str:
        return self.let(f"setp.{comparison}.{kind}", "pred", a, b)

    def select(self, condition: str, kind: str, a: str, b: str) -> str:
        return self.let(f"selp.{kind}", kind, a, b, condition)

    def narrow(self, value: str, dtype: DType) -> str:
        """Return a result truncated to 8 or 16 bits if `dtype` has so few, else unchanged."""
        if dtype.itemsize >= 4:
            return value
        if dtype.kind == "u":
            return self.let("and.b32", "b32", value, str(dtype.max))
        # Not cvt.s32.s16: of the bits of a float16 made from a bool, ptxas 13.0 makes the bool.
        return self.let("bfe.s32", "b32", value, "0", str(8 * dtype.itemsize))

    def declarations(self) -> list[str]:
        return [
            f"    .reg .{kind} {_PREFIXES[kind]}<{count + 1}>;"
            for kind, count in self.counts.items()
            if count
        ]

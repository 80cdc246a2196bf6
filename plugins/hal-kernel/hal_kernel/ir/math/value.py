"""Values with Python's operators, which write IR nodes: `x * 2.0 + y` becomes a MUL and an ADD."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hal_core.dtypes import DType, bool_, float32, float64, int32, int64, uint32, uint64
from hal_kernel.ir.uop import UOp

if TYPE_CHECKING:
    from typing import Self

Table = dict[DType, tuple[float, ...]]  # numbers for each dtype


class Format(NamedTuple):
    """The layout of the bits of a float.

    Adding `shifter` rounds to an integer and leaves that integer, in two's complement, in the low
    bits of the sum: cheaper on vectors than ROUND and a CAST that saturates.
    """

    bits: DType  # the integer of the same width
    word: DType  # the same without a sign
    mantissa: int  # its number of bits
    bias: int
    shifter: float
    smallest: float  # the smallest normal number


FORMATS: dict[DType, Format] = {
    float32: Format(int32, uint32, 23, 127, 1.5 * 2.0**23, 2.0**-126),
    float64: Format(int64, uint64, 52, 1023, 1.5 * 2.0**52, 2.0**-1022),
}


def bits_of(number: float, dtype: DType) -> int:
    """Return the integer with the bits of a positive float."""
    return int.from_bytes(struct.pack(f">{dtype.format}", number), "big")


class Page(NamedTuple):
    """The list that formulas append nodes to, and the line of the user's file that nodes get."""

    uops: list[UOp]
    line: int


class Value:
    """A node with a value, whose operators append nodes; numbers become constants of its dtype."""

    __slots__ = ("node", "page")

    def __init__(self, node: UOp, page: Page) -> None:
        self.node, self.page = node, page

    @property
    def dtype(self) -> DType:
        if self.node.dtype is None:
            raise TypeError(f"{self.node!r} is not a value")
        return self.node.dtype

    @property
    def format(self) -> Format:
        return FORMATS[self.dtype]

    def _put(self, op: str, dtype: DType | None, src: tuple[UOp, ...], arg: object = None) -> Self:
        page = self.page
        node = UOp(op, dtype, src, arg, page.line)
        page.uops.append(node)
        return type(self)(node, page)

    def new(self, op: str, dtype: DType | None, *sources: Value, arg: object = None) -> Self:
        return self._put(op, dtype, tuple([source.node for source in sources]), arg)

    def statement(self, op: str, *sources: Value) -> Self:
        """Append a node without a value."""
        return self.new(op, None, *sources)

    def const(self, number: float, dtype: DType | None = None) -> Self:
        return self._put("CONST", dtype or self.node.dtype, (), number)

    def apply(self, op: str, *others: Value | float) -> Self:
        """Append an operation whose operands and result have this value's dtype."""
        operands = [
            (other if isinstance(other, Value) else self.const(other)).node for other in others
        ]
        return self._put(op, self.node.dtype, (self.node, *operands))

    def compare(self, op: str, other: Value | float) -> Self:
        operand = other if isinstance(other, Value) else self.const(other)
        return self.new(op, bool_, self, operand)

    def __add__(self, other: Value | float) -> Self:
        return self.apply("ADD", other)

    def __sub__(self, other: Value | float) -> Self:
        return self.apply("SUB", other)

    def __rsub__(self, other: float) -> Self:
        return self.const(other).apply("SUB", self)

    def __mul__(self, other: Value | float) -> Self:
        return self.apply("MUL", other)

    def __truediv__(self, other: Value | float) -> Self:
        return self.apply("DIV", other)

    def __rtruediv__(self, other: float) -> Self:
        return self.const(other).apply("DIV", self)

    def __and__(self, other: Value | int) -> Self:
        return self.apply("AND", other)

    def __or__(self, other: Value | int) -> Self:
        return self.apply("OR", other)

    def __xor__(self, other: Value | int) -> Self:
        return self.apply("XOR", other)

    def __lshift__(self, other: Value | int) -> Self:
        return self.apply("SHL", other)

    def __rshift__(self, other: Value | int) -> Self:
        return self.apply("SHR", other)

    def __neg__(self) -> Self:
        return self.apply("NEG")

    def __abs__(self) -> Self:
        return self.apply("ABS")

    def __lt__(self, other: Value | float) -> Self:
        return self.compare("LT", other)

    def __gt__(self, other: Value | float) -> Self:
        return self.compare("GT", other)

    def equals(self, other: Value | float) -> Self:
        return self.compare("EQ", other)

    def fma(self, factor: Value | float, addend: Value | float) -> Self:
        """Return self * factor + addend, rounded once."""
        return self.apply("FMA", factor, addend)

    def times(self, factor: Value | float) -> Self:
        """Return the product as one FMA, x * y - 0, which no compiler fuses with a later add."""
        return self.fma(factor, -0.0)

    def where(self, then: Value | float, other: Value) -> Value:
        """Return `then` where this bool is true, else `other`."""
        chosen = then if isinstance(then, Value) else other.const(then)
        return self.new("WHERE", other.dtype, self, chosen, other)

    def cast(self, dtype: DType) -> Self:
        return self.new("CAST", dtype, self)

    def bitcast(self, dtype: DType) -> Self:
        return self.new("BITCAST", dtype, self)

    # formulas that several functions need

    def bits(self) -> Self:
        return self.bitcast(self.format.bits)

    def small_integer_to(self, dtype: DType) -> Value:
        """Cast an integer of few bits, cheaper than CAST where vectors have no such conversion."""
        shifter = FORMATS[dtype].shifter
        return (self + bits_of(shifter, dtype)).bitcast(dtype) - shifter

    def between(self, low: float, high: float) -> Self:
        """Clamp the value; a NaN stays, because it is the first operand of MAX and MIN."""
        return self.apply("MAX", low).apply("MIN", high)

    def polynomial(self, coefficients: Sequence[float]) -> Value:
        """Evaluate a polynomial by Horner's rule; `coefficients` begin with the constant term."""
        total: Value = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = total.fma(self, coefficient)
        return total

    def with_sign_of(self, other: Value) -> Value:
        """Return this magnitude with the sign bit of `other`, which may be a zero or a NaN."""
        sign = self.format.bits.min
        return (abs(self).bits() | (other.bits() & int(sign))).bitcast(self.dtype)


class Variable:
    """A local variable of a formula, which carries a value out of an IF or a LOOP."""

    def __init__(self, name: str, value: Value) -> None:
        self.first = value
        self._variable = value.new("VAR", value.dtype, arg=name)
        self.set(value)

    def set(self, value: Value) -> None:
        value.statement("SET", self._variable, value)

    def get(self) -> Value:
        return self.first.new("GET", self.first.dtype, self._variable)

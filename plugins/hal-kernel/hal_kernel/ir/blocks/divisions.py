"""Divide integers of up to 32 bits in float64: processors divide no vectors of integers.

    a // b       ->       floor(float64(a) / float64(b)), as an integer

The quotient of two such numbers is an integer, or at least 2**-32 of it away from the next one. A
float64 has 53 bits, so the rounded quotient has the same floor.

    a // b       ->       round(a * (1 / b) + 0.5 / |b| - 0.5), as an integer

Where threads share b, vectors multiply in float64. The exact value is 0.5 / |b| or more away from
where another integer begins, and the computed one 2**-19 / |b| at most from the exact one.
"""

from __future__ import annotations

from hal_core.dtypes import DType, bool_, float64, int32, int64, uint32
from hal_kernel.ir.math.value import Page, Value, bits_of
from hal_kernel.ir.uop import UOp

DIVISIONS = frozenset({"FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD"})
_SHIFTER = 1.5 * 2.0**52  # added to an integer, it leaves that in the low bits


def fits(node: UOp) -> bool:
    """Tell whether a division can be computed so."""
    return (
        node.dtype is not None and node.dtype.is_integer and node.dtype.itemsize <= int32.itemsize
    )


def by_floats(node: UOp, number: UOp, divisor: UOp) -> list[UOp]:
    """Return the nodes that compute a division of `number` by `divisor`, the result last."""
    made: list[UOp] = []
    kind = node.dtype or int32

    def add(op: str, *src: UOp, dtype: DType = kind, arg: object = None) -> UOp:
        made.append(UOp(op, dtype, src, arg, node.line))
        return made[-1]

    one, zero = add("CONST", arg=1), add("CONST", arg=0)
    none = add("EQ", divisor, zero, dtype=bool_)
    safe = add("WHERE", none, one, divisor)
    opposite = None
    if kind.kind == "i":  # the least integer by -1 leaves the dtype
        opposite = add("EQ", divisor, add("CONST", arg=-1), dtype=bool_)
        safe = add("WHERE", opposite, one, safe)
    floats = [add("CAST", value, dtype=float64) for value in (number, safe)]
    exact = add("DIV", *floats, dtype=float64)
    whole = add("TRUNC" if node.op.startswith("TRUNC") else "FLOOR", exact, dtype=float64)
    shifted = add("ADD", whole, add("CONST", dtype=float64, arg=_SHIFTER), dtype=float64)
    quotient = add("CAST", add("BITCAST", shifted, dtype=int64))
    if node.op.endswith("MOD"):
        product = add("MUL", quotient, safe)
        if kind is int32:  # the number's sums may wrap, but as part of an index they would not
            unsigned = [add("CAST", value, dtype=uint32) for value in (number, product)]
            add("CAST", add("SUB", *unsigned, dtype=uint32))
        else:
            add("SUB", number, product)
        return made
    if opposite is not None:
        quotient = add("WHERE", opposite, add("NEG", number), quotient)
    add("WHERE", none, zero, quotient)
    return made


def by_product(node: UOp) -> list[UOp]:
    """Return the nodes that compute `//` or `%` of 32-bit integers by a product, result last."""
    page = Page([], node.line)
    number, divisor = (Value(source, page) for source in node.src)
    none = divisor.compare("EQ", 0)
    safe = none.where(1, divisor)
    inverse = 1.0 / safe.cast(float64)
    quotient = number.cast(float64) * inverse + (abs(inverse) * 0.5 - 0.5)
    quotient = (quotient + _SHIFTER).bitcast(int64).cast(uint32)
    if node.op == "MOD":  # sums of int32 may wrap, but as part of an index they would not
        (number.cast(uint32) - quotient * safe.cast(uint32)).cast(number.dtype)
    else:
        none.where(0, quotient.cast(number.dtype))
    return page.uops


def by_wide_product(node: UOp) -> list[UOp]:
    """Return the nodes that compute `//` or `%` of a moderate int64 by 1 to 2**31, result last."""
    page = Page([], node.line)
    number, divisor = (Value(source, page) for source in node.src)
    inverse = 1.0 / divisor.cast(float64)
    shifted = number.cast(float64) * inverse + (inverse * 0.5 - 0.5) + _SHIFTER
    quotient = shifted.bitcast(int64) - bits_of(_SHIFTER, float64)
    if node.op == "MOD":
        _ = number - quotient * divisor
    return page.uops

"""Operations on constants alone, of any dtype."""

from __future__ import annotations

from builder import Builder

from hal_core.dtypes import DTYPES, DType, float32, int32
from hal_kernel.ir import Kernel


def constants(dtype: DType) -> Kernel:
    """Most instructions of PTX take numbers in place of registers."""
    b = Builder("constants", f"r: {dtype.name}*, i: int32*, c: bool*")
    if dtype in (DTYPES["float16"], DTYPES["bfloat16"]):
        b.store("r", b.index(), b.cast(b.const(1.5, float32), dtype))
        return b.kernel()
    one, two = b.const(1, dtype), b.const(0 if dtype.kind == "b" else 2, dtype)
    place = 0
    ops = ["AND", "XOR", "NOT"] if dtype.kind == "b" else ["ADD", "MUL", "MIN", "NEG", "ABS"]
    ops += (
        ["SHL", "SHR", "FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD", "NOT"] if dtype.is_integer else []
    )
    ops += ["DIV", "SQRT", "FLOOR", "ROUND"] if dtype.is_float else []
    for op in ops:
        operands = [one] if op in ("NEG", "ABS", "NOT", "SQRT", "FLOOR", "ROUND") else [one, two]
        b.store("r", b.const(place), b.add(op, dtype, *operands))
        place += 1
    condition = b.add("LT", DTYPES["bool"], one, two)
    b.store("c", b.const(0), condition)
    b.store("r", b.const(place), b.add("WHERE", dtype, b.const(True, DTYPES["bool"]), one, two))
    b.store("i", b.const(0), b.cast(two, int32))
    branch = b.if_(b.const(True, DTYPES["bool"]))
    b.store("r", b.const(place + 1), b.cast(b.const(3), dtype))
    b.end(branch)
    if dtype.is_float:
        bits = DTYPES[f"int{8 * dtype.itemsize}"]
        b.store("i", b.const(1), b.cast(b.bitcast(b.const(-1.0, dtype), bits), int32))
    return b.kernel()

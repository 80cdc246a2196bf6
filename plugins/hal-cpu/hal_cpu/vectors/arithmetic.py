"""Write operations in LLVM IR, on scalars (`n` = 1) or on vectors of `n` lanes."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from hal_core.dtypes import DTYPES, STORAGE_DTYPES, DType, bool_, float16, float32, float64, int32
from hal_cpu.vectors.helpers import division, narrow, widen
from hal_cpu.vectors.text import Text
from hal_kernel.ir.uop import UOp, dtype_of
from hal_kernel.render.literals import llvm_float, power_of_two

OPPOSITE = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE", "NE": "EQ"}
SIGNED = {"LT": "slt", "LE": "sle", "GT": "sgt", "GE": "sge", "EQ": "eq", "NE": "ne"}
_UNSIGNED = {"LT": "ult", "LE": "ule", "GT": "ugt", "GE": "uge", "EQ": "eq", "NE": "ne"}
_ORDERED = {"LT": "olt", "LE": "ole", "GT": "ogt", "GE": "oge", "EQ": "oeq", "NE": "une"}
_INTEGER = {"ADD": "add", "SUB": "sub", "MUL": "mul", "AND": "and", "OR": "or", "XOR": "xor"}
_FLOAT = {"ADD": "fadd", "SUB": "fsub", "MUL": "fmul", "DIV": "fdiv"}
_PLAIN = {kind: _FLOAT if kind == "f" else _INTEGER for kind in "biuf"}  # of two operands
_INTRINSICS = {
    "SQRT": "sqrt", "EXP": "exp", "EXP2": "exp2", "LOG": "log", "LOG2": "log2", "SIN": "sin",
    "COS": "cos", "FLOOR": "floor", "CEIL": "ceil", "TRUNC": "trunc", "ROUND": "rint",
    "ABS": "fabs", "POW": "pow", "FMA": "fma",
}  # fmt: skip
# Functions of the C library, which vectors call lane by lane.
_LIBRARY = {"TAN": "tan", "TANH": "tanh", "ATAN": "atan", "ATAN2": "atan2", "FMOD": "fmod"}
_TYPES = {
    **{dtype: f"i{8 * dtype.itemsize}" for dtype in DTYPES.values()},
    bool_: "i1", float32: "float", float64: "double",
}  # fmt: skip
_OPERAND = re.compile(r"\b(i\d+|float|double)\b( -?\d[\w.]*)?|, (-?\d[\w.]*)$", re.MULTILINE)


def scalar(dtype: DType) -> str:
    """Return the type of a value. A 16-bit float is an i16 with its bits."""
    return _TYPES[dtype]


def stored(dtype: DType) -> str:
    """Return the type of an element in memory, where a bool is a byte."""
    return "i8" if dtype is bool_ else _TYPES[dtype]


@functools.cache
def typed(dtype: DType, n: int) -> str:
    return of(_TYPES[dtype], n)


@functools.cache
def of(kind: str, n: int) -> str:
    """Return the type of `n` lanes of a scalar type."""
    return kind if n == 1 else f"<{n} x {kind}>"


def literal(value: float, dtype: DType) -> str:
    if dtype is bool_:
        return "true" if value else "false"
    return llvm_float(value, dtype) if dtype.kind == "f" else str(int(value))


def number(value: float, dtype: DType, n: int) -> str:
    """Return a constant that all lanes have."""
    text = literal(value, dtype)
    return text if n == 1 else f"splat ({_TYPES[dtype]} {text})"


def mangled(kind: str, n: int) -> str:
    """Return a type as names of intrinsics spell it: v8f32."""
    word = {"float": "f32", "double": "f64"}.get(kind, kind)
    return word if n == 1 else f"v{n}{word}"


def intrinsic(op: str, dtype: DType, n: int) -> str:
    """Return the name of a function of floats: LLVM's, or of one scalar the C library's."""
    if op in _LIBRARY:
        return f"@{_LIBRARY[op]}{'f' if dtype is float32 else ''}"
    return f"@llvm.{_INTRINSICS[op]}.{mangled(scalar(dtype), n)}"


def for_lanes(text: str, n: int) -> str:
    """Return the text of a function of scalars as one of vectors."""
    lines = []
    for line in text.splitlines():
        found = re.search(r"= (?:icmp \w+|\w+) (i\d+|float|double)", line)
        kind = found[1] if found else ""

        def widened(match: re.Match[str], kind: str = kind) -> str:
            if match[3]:
                return f", splat ({kind} {match[3]})"
            value = f" splat ({match[1]}{match[2]})" if match[2] else ""
            return f"<{n} x {match[1]}>{value}"

        lines.append(line if line == "}" else _OPERAND.sub(widened, line))
    return "\n".join(lines) + "\n"


class Arithmetic(Text):
    """Write operations. `half`: True if the processor converts float16 itself."""

    def __init__(self, half: bool) -> None:
        super().__init__()
        self.half = half

    def operation(self, uop: UOp, operands: Sequence[str], n: int) -> str:
        """Write an operation of the IR; return its result."""
        op, dtype = uop.op, dtype_of(uop.src[0])
        plain = _PLAIN[dtype.kind].get(op)
        if plain is not None:
            return self.let(f"{plain} {typed(dtype, n)} {operands[0]}, {operands[1]}")
        if op in SIGNED:
            return self.compare(op, dtype, n, *operands)
        if op in ("MIN", "MAX"):
            return self.least_or_greatest(op, dtype, n, *operands)
        if op == "WHERE":
            return self.select(operands[0], typed(dtype_of(uop), n), *operands[1:])
        if op == "CAST":
            return self._converted(uop, operands[0], n)
        if op == "BITCAST":
            old, new = typed(dtype, n), typed(dtype_of(uop), n)
            return operands[0] if old == new else self.let(f"bitcast {old} {operands[0]} to {new}")
        if dtype.kind == "f":
            return self._float(op, dtype, operands, n)
        return self._integer(uop, dtype, operands, n)

    def compare(self, op: str, dtype: DType, n: int, a: str, b: str) -> str:
        if dtype.kind == "f":
            return self.let(f"fcmp {_ORDERED[op]} {typed(dtype, n)} {a}, {b}")
        table = SIGNED if dtype.kind == "i" else _UNSIGNED
        return self.let(f"icmp {table[op]} {typed(dtype, n)} {a}, {b}")

    def select(self, condition: str, kind: str, a: str, b: str) -> str:
        """Choose between scalars, or lane by lane between vectors."""
        bools = f"{kind.partition('x')[0]}x i1>" if kind.startswith("<") else "i1"
        return self.let(f"select {bools} {condition}, {kind} {a}, {kind} {b}")

    def least_or_greatest(self, op: str, dtype: DType, n: int, a: str, b: str) -> str:
        """Return `b` if it is less (MAX: greater) than `a`, else `a`: a NaN in `a` stays."""
        better = self.compare("LT" if op == "MIN" else "GT", dtype, n, b, a)
        return self.select(better, typed(dtype, n), b, a)

    def _float(self, op: str, dtype: DType, operands: Sequence[str], n: int) -> str:
        kind = typed(dtype, n)
        if op == "NEG":
            return self.let(f"fneg {kind} {operands[0]}")
        if op == "ISNAN":
            return self.let(f"fcmp uno {kind} {operands[0]}, {operands[0]}")
        if op == "RSQRT":
            root = self._float("SQRT", dtype, operands, n)
            return self.let(f"fdiv {kind} {number(1.0, dtype, n)}, {root}")
        if op in _LIBRARY:
            return self.by_lanes(intrinsic(op, dtype, 1), dtype, operands, n)
        return self.call(intrinsic(op, dtype, n), kind, [kind] * len(operands), operands)

    def by_lanes(self, name: str, dtype: DType, operands: Sequence[str], n: int) -> str:
        """Call a function of scalars for each lane."""
        one, kinds = scalar(dtype), [scalar(dtype)] * len(operands)
        if n == 1:
            return self.call(name, one, kinds, operands)
        whole = "poison"
        for lane in range(n):
            parts = [self.lane(one, value, n, lane) for value in operands]
            result = self.call(name, one, kinds, parts)
            whole = self.let(f"insertelement {of(one, n)} {whole}, {one} {result}, i64 {lane}")
        return whole

    def lane(self, kind: str, vector: str, n: int, lane: int | str) -> str:
        """Return one lane of a vector."""
        return self.let(f"extractelement {of(kind, n)} {vector}, i64 {lane}")

    # -- integers

    def _integer(self, uop: UOp, dtype: DType, operands: Sequence[str], n: int) -> str:
        op, kind, a = uop.op, typed(dtype, n), operands[0]
        if op == "NEG":
            return self.let(f"sub {kind} {number(0, dtype, n)}, {a}")
        if op == "NOT":
            return self.let(f"xor {kind} {a}, {number(1 if dtype is bool_ else -1, dtype, n)}")
        if op == "ABS":
            if dtype.kind == "u":
                return a
            return self.call(
                f"@llvm.abs.{mangled(scalar(dtype), n)}", kind, [kind, "i1"], [a, "false"]
            )
        b = operands[1]
        constant = int(uop.src[1].arg) if uop.src[1].op == "CONST" else None
        if op in ("SHL", "SHR"):
            bits = 8 * dtype.itemsize - 1
            if constant is None:
                amount = self.let(f"and {kind} {b}, {number(bits, dtype, n)}")
            else:
                amount = number(constant & bits, dtype, n)
            return self.let(f"{shift(op, dtype)} {kind} {a}, {amount}")
        power = power_of_two(constant)
        # A shift rounds down, as // does, so the remainder is never negative.
        if power is not None and (dtype.kind == "u" or op in ("FLOORDIV", "MOD")):
            if "DIV" in op:
                return self.let(f"{shift('SHR', dtype)} {kind} {a}, {number(power, dtype, n)}")
            return self.let(f"and {kind} {a}, {number((1 << power) - 1, dtype, n)}")
        if n > 1 and constant is None and dtype.itemsize <= 4:
            return self._divided(op, dtype, a, b, n)
        name, text = division(op, scalar(dtype), dtype.kind == "i")
        return self._help(name, text, kind, [kind, kind], [a, b], n)

    def _divided(self, op: str, dtype: DType, a: str, b: str, n: int) -> str:
        """Divide lanes in float64, where the quotients of 32-bit integers round rightly."""
        if dtype.itemsize < 4:  # in 32 bits, which no quotient leaves
            how = "sext" if dtype.kind == "i" else "zext"
            wide = [self.let(f"{how} {typed(dtype, n)} {x} to {of('i32', n)}") for x in (a, b)]
            whole = self._divided(op, int32, wide[0], wide[1], n)
            return self.let(f"trunc {of('i32', n)} {whole} to {typed(dtype, n)}")
        kind, wide_kind, sign = of("i32", n), of("double", n), "s" if dtype.kind == "i" else "u"
        zero = self.let(f"icmp eq {kind} {b}, zeroinitializer")
        safe = self.select(zero, kind, number(1, int32, n), b)
        x, y = (self.let(f"{sign}itofp {kind} {v} to {wide_kind}") for v in (a, safe))
        quotient = self.let(f"fdiv {wide_kind} {x}, {y}")
        how = "floor" if op in ("FLOORDIV", "MOD") else "trunc"
        name = f"@llvm.{how}.{mangled('double', n)}"
        quotient = self.call(name, wide_kind, [wide_kind], [quotient])
        if sign == "s":  # 2**31, of the least integer by -1, becomes the least integer
            over = self.let(f"fcmp oge {wide_kind} {quotient}, {number(2.0**31, float64, n)}")
            quotient = self.select(over, wide_kind, number(-(2.0**31), float64, n), quotient)
        whole = self.let(f"fpto{sign}i {wide_kind} {quotient} to {kind}")
        if "MOD" in op:
            product = self.let(f"mul {kind} {whole}, {safe}")
            whole = self.let(f"sub {kind} {a}, {product}")
        return self.select(zero, kind, "zeroinitializer", whole)

    # -- conversions

    def _converted(self, uop: UOp, value: str, n: int) -> str:
        (source,) = uop.src
        old, new = dtype_of(source), dtype_of(uop)
        if old in (float32, float64) and new.kind in "iu":
            return self._saturated(old, new, value, n)
        return self.cast(old, new, value, n)

    def cast(self, source: DType, target: DType, value: str, n: int) -> str:
        """Convert, but for floats to integers."""
        old, new = typed(source, n), typed(target, n)
        if source is target:
            return value
        if source in STORAGE_DTYPES:
            if source is not float16 or not self.half:
                return self._help(*widen(source), typed(float32, n), [old], [value], n)
            bits = self.let(f"bitcast {old} {value} to {of('half', n)}")
            return self.let(f"fpext {of('half', n)} {bits} to {new}")
        if target in STORAGE_DTYPES:
            if target is not float16 or not self.half:
                return self._help(*narrow(target), new, [old], [value], n)
            bits = self.let(f"fptrunc {old} {value} to {of('half', n)}")
            return self.let(f"bitcast {of('half', n)} {bits} to {new}")
        if target is bool_:
            test = "fcmp une" if source.kind == "f" else "icmp ne"
            return self.let(f"{test} {old} {value}, {number(0, source, n)}")
        if source.kind == "f":
            how = "fpext" if target.itemsize > source.itemsize else "fptrunc"
        elif target.kind == "f":
            how = "sitofp" if source.kind == "i" else "uitofp"
        elif old == new:
            return value
        elif source is bool_ or target.itemsize > source.itemsize:
            how = "sext" if source.kind == "i" else "zext"
        else:
            how = "trunc"
        return self.let(f"{how} {old} {value} to {new}")

    def _saturated(self, source: DType, target: DType, value: str, n: int) -> str:
        """Return a float as the nearest integer towards zero that the dtype has; NaN gives 0.

        A number beyond the dtype gives its least or its greatest value. It is clamped first, as the
        instruction is undefined for such numbers.
        """
        old, new = typed(source, n), typed(target, n)
        least, most = int(target.min), int(target.max)
        digits = 24 if source is float32 else 53
        # The greatest float that the integer can hold.
        held = most >> max(0, most.bit_length() - digits) << max(0, most.bit_length() - digits)
        low, high = (number(float(end), source, n) for end in (least, held))
        clamped = value
        if held == most:  # first, as LLVM's maximum on Arm is NaN for a NaN that signals
            beyond = self.let(f"fcmp ogt {old} {value}, {high}")  # false for NaN
            clamped = self.select(beyond, old, high, value)
        above = self.let(f"fcmp ogt {old} {clamped}, {low}")  # false for NaN
        clamped = self.select(above, old, clamped, low)
        if target.itemsize < 4:  # processors convert to 32 bits
            wide = self.let(f"fptosi {old} {clamped} to {of('i32', n)}")
            whole = self.let(f"trunc {of('i32', n)} {wide} to {new}")
        else:
            whole = self.let(f"fpto{'s' if least else 'u'}i {old} {clamped} to {new}")
        if held != most:  # what was converted of such numbers is not used
            large = self.let(f"fcmp ogt {old} {value}, {high}")
            whole = self.select(large, new, number(most, target, n), whole)
        if not least:  # NaN gave the least
            return whole
        nan = self.let(f"fcmp uno {old} {value}, {value}")
        return self.select(nan, new, number(0, target, n), whole)

    def _help(
        self, name: str, text: str, result: str, kinds: Sequence[str], operands: Sequence[str],
        n: int,
    ) -> str:  # fmt: skip
        """Call a small function that the text contains."""
        if n > 1:
            text = for_lanes(text.replace(name, "@NAME"), n).replace("@NAME", f"{name}.{n}")
            name = f"{name}.{n}"
        self.helpers[name] = text
        given = ", ".join(f"{kind} {value}" for kind, value in zip(kinds, operands, strict=True))
        return self.let(f"call {result} {name}({given})")


def shift(op: str, dtype: DType) -> str:
    return "shl" if op == "SHL" else "ashr" if dtype.kind == "i" else "lshr"

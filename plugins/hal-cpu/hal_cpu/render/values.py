"""Write the instructions of LLVM IR that compute values."""

from __future__ import annotations

import math

from hal_core.dtypes import DTYPES, STORAGE_DTYPES, DType, bool_, float16, float32, float64
from hal_cpu.render.far import DECLARATIONS, call_of, definitions
from hal_cpu.render.helpers import division, narrow, widen
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import dtype_of
from hal_kernel.render.literals import llvm_float, power_of_two

INTEGER = {"ADD": "add", "SUB": "sub", "MUL": "mul", "AND": "and", "OR": "or", "XOR": "xor"}
_FLOAT = {"ADD": "fadd", "SUB": "fsub", "MUL": "fmul", "DIV": "fdiv", "FMOD": "frem"}
_SIGNED_COMPARE = {"LT": "slt", "LE": "sle", "GT": "sgt", "GE": "sge", "EQ": "eq", "NE": "ne"}
_UNSIGNED_COMPARE = {"LT": "ult", "LE": "ule", "GT": "ugt", "GE": "uge", "EQ": "eq", "NE": "ne"}
_FLOAT_COMPARE = {"LT": "olt", "LE": "ole", "GT": "ogt", "GE": "oge", "EQ": "oeq", "NE": "une"}
_INTRINSICS = {
    "SQRT": "sqrt", "EXP": "exp", "EXP2": "exp2", "LOG": "log", "LOG2": "log2", "SIN": "sin",
    "COS": "cos", "FLOOR": "floor", "CEIL": "ceil", "TRUNC": "trunc", "ROUND": "rint",
    "ABS": "fabs", "POW": "pow", "FMA": "fma",
}  # fmt: skip
# LLVM before 19 has no intrinsics for these, so the C library is called.
_LIBRARY = {"TAN": "tan", "TANH": "tanh", "ATAN": "atan", "ATAN2": "atan2", "FMOD": "fmod"}


_TYPES = {
    **{dtype: f"i{8 * dtype.itemsize}" for dtype in DTYPES.values()},
    bool_: "i1", float32: "float", float64: "double",
}  # fmt: skip


def type_of(dtype: DType) -> str:
    """Return the type of a value. A 16-bit float is an i16 with its bits."""
    return _TYPES[dtype]


class Values:
    """Write instructions, and collect the declarations and helpers that they need."""

    def __init__(self, half: bool) -> None:
        self.count = 0
        self.lines: list[str] = []
        self.values: dict[UOp, str] = {}
        self.declarations: dict[str, None] = {}
        self.helpers: dict[str, str] = {}  # name -> definition
        self.variants: dict[str, list[str]] = {}  # helper -> those for vectors
        self.half = half  # True when the processor converts float16 itself

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str, name: str | None = None) -> str:
        """Write an instruction and return the name of its result."""
        if name is None:
            name = f"%v.{self.count}"
            self.count += 1
        self.lines.append(f"  {name} = {text}")
        return name

    def number(self) -> int:
        """Return a new number, which makes a name unique in the text."""
        self.count += 1
        return self.count - 1

    def on_CONST(self, uop: UOp) -> None:
        if uop not in self.values:  # a row may be written several times
            self.values[uop] = literal(uop.arg, dtype_of(uop))

    def on_CAST(self, uop: UOp) -> None:
        (source,) = uop.src
        dtype, target, value = dtype_of(source), dtype_of(uop), self.values[source]
        if dtype in (float32, float64) and target.kind in "iu":
            self.values[uop] = self._saturated(dtype, target, value, clamped_to(source))
        else:
            self.values[uop] = self._cast(dtype, target, value)

    def on_BITCAST(self, uop: UOp) -> None:
        (source,) = uop.src
        old, new, value = type_of(dtype_of(source)), type_of(dtype_of(uop)), self.values[source]
        self.values[uop] = value if old == new else self.let(f"bitcast {old} {value} to {new}")

    def on_WHERE(self, uop: UOp) -> None:
        condition, a, b = [self.values[source] for source in uop.src]
        self.values[uop] = self.select(condition, type_of(dtype_of(uop)), a, b)

    def value(self, uop: UOp) -> str:
        """Write the instructions of an operation on one dtype; return its value's name."""
        op, takes = uop.op, dtype_of(uop.src[0])
        operands = [self.values[source] for source in uop.src]
        if op in _SIGNED_COMPARE:
            return self._compare(op, takes, *operands)
        if op in ("MIN", "MAX"):
            return self.least_or_greatest(op, takes, *operands)
        if takes.kind == "f":
            return self._float(op, takes, operands)
        return self._integer(uop, takes, operands)

    def _float(self, op: str, dtype: DType, operands: list[str]) -> str:
        kind = type_of(dtype)
        if op in _FLOAT:
            return self.let(f"{_FLOAT[op]} {kind} {operands[0]}, {operands[1]}")
        if op == "NEG":
            return self.let(f"fneg {kind} {operands[0]}")
        if op == "ISNAN":
            return self.let(f"fcmp uno {kind} {operands[0]}, {operands[0]}")
        if op == "RSQRT":
            root = self._float("SQRT", dtype, operands)
            return self.let(f"fdiv {kind} {llvm_float(1.0, dtype)}, {root}")
        return self._call(_function(op, dtype), kind, [kind] * len(operands), operands)

    def on_FAR(self, uop: UOp) -> None:
        """Write the call of a function for arguments that are seldom met; `expand` makes it."""
        (op, limit), operands = uop.arg, [self.values[source] for source in uop.src]
        name, library = f"@hal.far.{op.lower()}", _function(op, float64)
        taken = ", ".join(["double"] * (len(operands) - 1))
        for declaration in (f"declare double {library}({taken})", *DECLARATIONS):
            self.declarations[declaration] = None
        text, self.variants[name] = definitions(name, library, limit, len(operands) - 1)
        self.helpers[name] = text
        self.values[uop] = self.let(call_of(name, operands))

    def _integer(self, uop: UOp, dtype: DType, operands: list[str]) -> str:
        op, kind, a = uop.op, type_of(dtype), operands[0]
        if op in INTEGER:
            return self.let(f"{INTEGER[op]} {kind} {a}, {operands[1]}")
        if op == "NEG":
            return self.let(f"sub {kind} 0, {a}")
        if op == "NOT":
            return self.let(f"xor {kind} {a}, {'true' if kind == 'i1' else '-1'}")
        if op == "ABS":
            if dtype.kind == "u":
                return a
            return self._call(f"@llvm.abs.{kind}", kind, [kind, "i1"], [a, "false"])
        b, constant = operands[1], uop.src[1].arg if uop.src[1].op == "CONST" else None
        if op in ("SHL", "SHR"):
            mask = 8 * dtype.itemsize - 1
            amount = self.let(f"and {kind} {b}, {mask}") if constant is None else constant & mask
            return self.let(f"{_shift(op, dtype)} {kind} {a}, {amount}")
        shift = power_of_two(constant)
        # A shift rounds down, as // does, so the remainder is never negative.
        if shift is not None and (dtype.kind == "u" or op in ("FLOORDIV", "MOD")):
            if "DIV" in op:
                return self.let(f"{_shift('SHR', dtype)} {kind} {a}, {shift}")
            return self.let(f"and {kind} {a}, {(1 << shift) - 1}")
        callee, text = division(op, kind, dtype.kind == "i")
        self.helpers[callee] = text
        return self.let(f"call {kind} {callee}({kind} {a}, {kind} {b})")

    def _compare(self, op: str, dtype: DType, a: str, b: str) -> str:
        if dtype.kind == "f":
            return self.let(f"fcmp {_FLOAT_COMPARE[op]} {type_of(dtype)} {a}, {b}")
        table = _SIGNED_COMPARE if dtype.kind == "i" else _UNSIGNED_COMPARE
        return self.let(f"icmp {table[op]} {type_of(dtype)} {a}, {b}")

    def least_or_greatest(self, op: str, dtype: DType, a: str, b: str) -> str:
        """Return `b` if it is less (MAX: greater) than `a`, else `a`: a NaN in `a` stays."""
        better = self._compare("LT" if op == "MIN" else "GT", dtype, b, a)
        return self.select(better, type_of(dtype), b, a)

    def select(self, condition: str, kind: str, a: str, b: str) -> str:
        return self.let(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def _cast(self, source: DType, target: DType, value: str) -> str:
        old, new = type_of(source), type_of(target)
        if source is target:
            return value
        if source in STORAGE_DTYPES:
            if source is not float16 or not self.half:
                return self._help(*widen(source), "float", "i16", value)
            bits = self.let(f"bitcast i16 {value} to half")
            return self.let(f"fpext half {bits} to float")
        if target in STORAGE_DTYPES:
            if target is not float16 or not self.half:
                return self._help(*narrow(target), "i16", "float", value)
            bits = self.let(f"fptrunc float {value} to half")
            return self.let(f"bitcast half {bits} to i16")
        if target.kind == "b":
            zero = "fcmp une" if source.kind == "f" else "icmp ne"
            return self.let(f"{zero} {old} {value}, {literal(0, source)}")
        if source.kind == "f" and target.kind == "f":
            how = "fpext" if target.itemsize > source.itemsize else "fptrunc"
        elif target.kind == "f":
            how = "sitofp" if source.kind == "i" else "uitofp"
        elif old == new:
            return value
        elif source.kind == "b" or target.itemsize > source.itemsize:
            how = "sext" if source.kind == "i" else "zext"
        else:
            how = "trunc"
        return self.let(f"{how} {old} {value} to {new}")

    def _saturated(
        self, source: DType, target: DType, value: str, ends: tuple[float, float]
    ) -> str:
        """Return a float as the nearest integer towards zero that the dtype has; NaN gives 0.

        A number beyond the dtype gives its least or its greatest value. It is clamped first, as the
        instruction is undefined for such numbers, and a clamp is two instructions and no branch.
        LLVM has an intrinsic for this, but makes no vectors of it. `ends`: what the kernel itself
        has clamped the number to.
        """
        old, new = type_of(source), type_of(target)
        least, most = int(target.min), int(target.max)
        digits = 24 if source is float32 else 53
        # The greatest float that the integer can hold.
        held = most >> max(0, most.bit_length() - digits) << max(0, most.bit_length() - digits)
        low, high = (llvm_float(float(end), source) for end in (least, held))
        clamped = value
        if ends[0] < least:
            above = self.let(f"fcmp ogt {old} {value}, {low}")  # false for NaN
            clamped = self.select(above, old, value, low)
        if ends[1] > held == most:
            below = self.let(f"fcmp olt {old} {clamped}, {high}")
            clamped = self.select(below, old, clamped, high)
        if target.itemsize < 4:  # processors convert to 32 bits
            wide = self.let(f"fptosi {old} {clamped} to i32")
            whole = self.let(f"trunc i32 {wide} to {new}")
        else:
            whole = self.let(f"fpto{'s' if least else 'u'}i {old} {clamped} to {new}")
        if ends[1] > held != most:  # what was converted of such numbers is not used
            large = self.let(f"fcmp ogt {old} {value}, {high}")
            whole = self.select(large, new, str(most), whole)
        if not least and ends[0] < least:  # NaN gave the least
            return whole
        nan = self.let(f"fcmp uno {old} {value}, {value}")
        return self.select(nan, new, "0", whole)

    def _call(self, callee: str, result: str, kinds: list[str], operands: list[str]) -> str:
        self.declarations[f"declare {result} {callee}({', '.join(kinds)})"] = None
        arguments = ", ".join([f"{k} {v}" for k, v in zip(kinds, operands, strict=True)])
        return self.let(f"call {result} {callee}({arguments})")

    def _help(self, callee: str, text: str, result: str, kind: str, value: str) -> str:
        self.helpers[callee] = text
        return self.let(f"call {result} {callee}({kind} {value})")


def clamped_to(node: UOp) -> tuple[float, float]:
    """Return the least and the greatest number that a float may be, unless it is NaN."""
    least, most = -math.inf, math.inf
    if node.op == "CONST":
        least = most = float(node.arg)
    elif node.op in ("MIN", "MAX"):
        for source, other in zip(node.src, node.src[::-1], strict=True):
            if source.op == "CONST" and not math.isnan(source.arg):
                end, (least, most) = float(source.arg), clamped_to(other)
                # If the other is NaN, the result may be the constant.
                ends = (min(least, end), end) if node.op == "MIN" else (end, max(most, end))
                least, most = ends
    return least, most


def _function(op: str, dtype: DType) -> str:
    """Return the name of a function of floats."""
    if op in _LIBRARY:
        return f"@{_LIBRARY[op]}{'f' if dtype.itemsize == 4 else ''}"
    return f"@llvm.{_INTRINSICS[op]}.f{8 * dtype.itemsize}"


def _shift(op: str, dtype: DType) -> str:
    return "shl" if op == "SHL" else "ashr" if dtype.kind == "i" else "lshr"


def literal(value: float, dtype: DType) -> str:
    if dtype.kind == "b":
        return "true" if value else "false"
    return llvm_float(value, dtype) if dtype.kind == "f" else str(int(value))

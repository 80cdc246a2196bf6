"""Write the PTX instructions that compute values."""

from __future__ import annotations

from hal_core.dtypes import DType, bool_
from hal_cuda.render.casts import bitcast, cast
from hal_cuda.render.text import Registers, kind_of, literal, type_of
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import COMPARISON, dtype_of

_INTEGER = {"ADD": "add", "SUB": "sub", "MUL": "mul.lo", "MIN": "min", "MAX": "max"}
_BITWISE = {"AND": "and", "OR": "or", "XOR": "xor", "NOT": "not"}
_ROUNDING = {"FLOOR": "rmi", "CEIL": "rpi", "TRUNC": "rzi", "ROUND": "rni"}


class Values(Registers):
    """Write instructions, and keep the register or number of each node's value."""

    def __init__(self, contract: bool) -> None:
        super().__init__()
        self.values: dict[UOp, str] = {}
        # Without a rounding mode ptxas may fuse a multiplication and an addition.
        self.exactly = "" if contract else ".rn"

    def value(self, uop: UOp) -> str:
        """Write the instructions of a node without side effects; return its register or number."""
        op, dtype = uop.op, dtype_of(uop)
        operands = [self.values[source] for source in uop.src]
        if op == "CONST":
            return literal(uop.arg, dtype)
        if op == "GET":  # copied, because a later SET changes the variable's register
            return self.let(f"mov.{kind_of(dtype)}", kind_of(dtype), operands[0])
        takes = dtype_of(uop.src[0])
        if op in ("CAST", "BITCAST"):
            change = cast if op == "CAST" else bitcast
            return change(self, operands[0], takes, dtype)
        if op == "WHERE" and dtype is not bool_:
            return self.select(operands[0], kind_of(dtype), *operands[1:])
        if op == "WHERE":  # selp takes no predicates
            condition, a, b = operands
            first = self.let("and.pred", "pred", condition, a)
            opposite = self.let("not.pred", "pred", condition)
            return self.let("or.pred", "pred", first, self.let("and.pred", "pred", opposite, b))
        if op in COMPARISON:
            return self._compare(op, takes, *operands)
        if takes is bool_:
            return self.let(f"{_BITWISE[op]}.pred", "pred", *operands)
        if op in ("MIN", "MAX") and takes.is_float:
            a, b = operands  # the instructions min and max drop a NaN in `a`
            better = self._compare("LT" if op == "MIN" else "GT", takes, b, a)
            return self.select(better, kind_of(takes), b, a)
        if takes.is_float:
            return self._float(op, takes, operands)
        return self._integer(uop, takes, operands)

    def _compare(self, op: str, dtype: DType, a: str, b: str) -> str:
        if dtype is bool_:
            a, b = (self.select(side, "b32", "1", "0") for side in (a, b))
        comparison = "neu" if op == "NE" and dtype.is_float else op.lower()
        return self.test(comparison, "s32" if dtype is bool_ else type_of(dtype), a, b)

    # -- floats

    def _float(self, op: str, dtype: DType, operands: list[str]) -> str:
        kind = kind_of(dtype)
        if op in ("ADD", "SUB", "MUL"):
            return self.let(f"{op.lower()}{self.exactly}.{kind}", kind, *operands)
        if op in ("DIV", "FMA", "SQRT"):
            return self.let(f"{op.lower()}.rn.{kind}", kind, *operands)
        if op == "RSQRT":
            root = self.let(f"sqrt.rn.{kind}", kind, *operands)
            return self.let(f"div.rn.{kind}", kind, literal(1.0, dtype), root)
        if op == "ISNAN":
            return self.test("nan", kind, operands[0], operands[0])
        if op in _ROUNDING:
            return self.let(f"cvt.{_ROUNDING[op]}.{kind}.{kind}", kind, *operands)
        return self.let(f"{op.lower()}.{kind}", kind, *operands)  # NEG, ABS

    # -- integers

    def _integer(self, uop: UOp, dtype: DType, operands: list[str]) -> str:
        op, kind, register = uop.op, type_of(dtype), kind_of(dtype)
        if op in _INTEGER:
            result = self.let(f"{_INTEGER[op]}.{kind}", register, *operands)
            return result if op in ("MIN", "MAX") else self.narrow(result, dtype)
        if op in _BITWISE:
            return self.narrow(self.let(f"{_BITWISE[op]}.{register}", register, *operands), dtype)
        if op in ("SHL", "SHR"):
            a, b = operands
            if register == "b64":
                b = self.let("cvt.u32.u64", "b32", b)
            amount = self.let("and.b32", "b32", b, str(8 * dtype.itemsize - 1))
            if op == "SHR":
                return self.let(f"shr.{kind}", register, a, amount)
            return self.narrow(self.let(f"shl.{register}", register, a, amount), dtype)
        if op in ("FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD"):
            constant = uop.src[1].arg if uop.src[1].op == "CONST" else None
            return self.narrow(self._division(op, dtype, constant, *operands), dtype)
        if op == "ABS" and dtype.kind == "u":
            return operands[0]
        negated = self.narrow(self.let(f"neg.s{register[1:]}", register, *operands), dtype)
        # max(x, -x) gives the least integer for itself; PTX's abs leaves that case undefined.
        return negated if op == "NEG" else self.let(f"max.{kind}", register, *operands, negated)

    def _division(self, op: str, dtype: DType, constant: int | None, a: str, b: str) -> str:
        """Return a division or its remainder; by 0 gives 0. Undefined divisors become 1."""
        kind, register = type_of(dtype), kind_of(dtype)
        if constant == 0:
            return "0"
        signed = dtype.kind == "i"
        zero = minus = None
        if constant is None:
            zero = special = self.test("eq", kind, b, "0")
            if signed:
                minus = self.test("eq", kind, b, "-1")
                special = self.let("or.pred", "pred", zero, minus)
            b = self.select(special, register, "1", b)
        elif constant == -1:
            return self.let(f"neg.{kind}", register, a) if "DIV" in op else "0"
        if signed and op in ("FLOORDIV", "MOD"):
            result = self._floor(op, dtype, a, b)
        else:
            result = self.let(f"{'div' if 'DIV' in op else 'rem'}.{kind}", register, a, b)
        if minus and "DIV" in op:
            result = self.select(minus, register, self.let(f"neg.{kind}", register, a), result)
        return self.select(zero, register, "0", result) if zero else result

    def _floor(self, op: str, dtype: DType, a: str, b: str) -> str:
        """Return a signed floor division or its remainder, from PTX's, which truncate towards 0."""
        kind, register = type_of(dtype), kind_of(dtype)
        rest = self.let(f"rem.{kind}", register, a, b)
        signs = self.let(f"xor.{register}", register, rest, b)
        differ = self.test("lt", kind, signs, "0")
        inexact = self.test("ne", kind, rest, "0")
        lower = self.let("and.pred", "pred", differ, inexact)
        if op == "MOD":
            more = self.select(lower, register, b, "0")
            return self.let(f"add.{kind}", register, rest, more)
        quotient = self.let(f"div.{kind}", register, a, b)
        return self.let(f"sub.{kind}", register, quotient, self.select(lower, register, "1", "0"))

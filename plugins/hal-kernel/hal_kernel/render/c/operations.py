"""Write operations in a language of the C family: operators, functions, elements, atomics."""

from __future__ import annotations

import math

from hal_core.dtypes import DTYPES
from hal_core.errors import Unsupported
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import array_of, dtype_of, is_fence
from hal_kernel.ir.vectors import NBYTES
from hal_kernel.render.c import helpers
from hal_kernel.render.c.casts import bitcast, cast
from hal_kernel.render.c.expression import Expression
from hal_kernel.render.c.language import Language
from hal_kernel.render.c.spelling import Spelling
from hal_kernel.render.literals import power_of_two

MEMORY = 0  # in `Expression.reads`: a LOAD; a GET adds the id of its variable
_INFIX = {
    "ADD": "+", "SUB": "-", "MUL": "*", "DIV": "/", "AND": "&", "OR": "|", "XOR": "^",
    "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!=",
}  # fmt: skip
_ORDER = frozenset({"LT", "LE", "GT", "GE"})
# The parameters of an atomic's helper behind the pointer; the other atomics take one value.
_VALUES: dict[str, tuple[str, ...]] = {"CAS": ("expected", "desired"), "LOAD": ()}
_WRAPPING = frozenset({"ADD", "SUB", "MUL", "NEG", "ABS", "SHL"})


def _misread_zeros(uop: UOp) -> list[int]:
    """Return the places of zeros that are divided, or that one instruction would order.

    In a choice it would take -0.0 for less than 0.0.
    """
    if uop.op == "DIV":
        return [0] if _is_zero(uop.src[0]) else []
    zeros = [place for place, source in enumerate(uop.src) if _is_zero(source)]
    if uop.op in ("MIN", "MAX"):  # of two that are equal the first is the result
        return [
            place
            for place in zeros
            if math.copysign(1, uop.src[place].arg) < 0 or (uop.op == "MIN" and place == 0)
        ]
    if uop.op != "WHERE":
        return []
    condition = uop.src[0]
    while condition.op == "NOT":
        condition = condition.src[0]
    return zeros if condition.op in _ORDER and any(map(_is_zero, condition.src)) else []


def _is_zero(uop: UOp) -> bool:
    return uop.op == "CONST" and dtype_of(uop).is_float and uop.arg == 0


class Operations(Spelling):
    """Write the text of a node, given the texts of its sources."""

    def expression(self, uop: UOp, sources: list[Expression]) -> Expression:
        """Return the text of `uop`, given the texts of its sources."""
        reads = frozenset[int]().union(*(source.reads for source in sources))
        if uop.op == "LOAD":
            text, is_bool = self.element(uop, *sources), dtype_of(uop).kind == "b"
            return Expression(f"{text} != 0" if is_bool else text, not is_bool, reads | {MEMORY})
        if uop.op in _WRAPPING and dtype_of(uop).is_integer:
            return self._wrapping(uop, sources, reads)
        text, atom = self._plain(uop, sources)
        return Expression(text, atom, reads)

    def low_bits(self, uop: UOp, value: Expression) -> Expression:
        """Return low bits of an index as a number of which the compiler knows nothing."""
        kind, name = self.type(dtype_of(uop)), f"hal_low_bits_{dtype_of(uop)}"
        self.helper(name, self.row.low_bits, type=kind)
        return Expression(f"{name}({value.text}, grid_dim_x)", True, value.reads)

    def get(self, uop: UOp, variable: str) -> Expression:
        return Expression(variable, True, frozenset({id(uop.src[0])}))

    def element(self, uop: UOp, pointer: Expression, index: Expression) -> str:
        """Return the text of the element of memory that a node accesses.

        An index that overflows int32 is undefined, so its arithmetic need not wrap. Computed in 64
        bits, compilers see that consecutive indices are consecutive in memory, and vectorise.
        """
        wide = index.wide if self.row.wide_indices else ""
        text = wide or index.text
        if isinstance(uop.arg, tuple) and uop.arg[0]:
            text = f"{wide or index.operand} + {uop.arg[0]}"
        return f"{pointer.text}[{text}]"

    def vector(self, uop: UOp, pointer: Expression, index: Expression) -> tuple[str, str, str]:
        """Return the type of a vector, the helper that accesses it, and its first element."""
        memory, (_, count) = dtype_of(uop.src[0]), uop.arg
        space = self.row.spaces[array_of(uop.src[0]).op]
        kind = self.aliasing(memory)
        type_ = f"hal_{memory.name}x{count}"
        nbytes = min(NBYTES, count * memory.itemsize)
        self.helper(type_, self.row.vector, type=kind, count=str(count), nbytes=str(nbytes))
        action = space.name.replace("atomic", uop.op.lower())
        name = f"hal_{action}_{memory.name}x{count}"
        lanes = range(count)
        self.helper(
            name, helpers.VECTORS[uop.op], space=space.qualifier, type=kind, vector=type_,
            address=self.row.types["uint64"], last=str(nbytes - 1),
            parameters=", ".join(f"{kind} v{lane}" for lane in lanes),
            values=", ".join(f"v{lane}" for lane in lanes),
            elements=", ".join(f"q[{lane}]" for lane in lanes),
            stores=" ".join(f"q[{lane}] = v{lane};" for lane in lanes),
        )  # fmt: skip
        return type_, name, f"&{self.element(uop, pointer, index)}"

    def _plain(self, uop: UOp, sources: list[Expression]) -> tuple[str, bool]:
        """Return the text of a value without unsigned arithmetic, and True if it is an atom."""
        op, dtype = uop.op, dtype_of(uop.src[0])
        operands = [source.operand for source in sources] + ["", ""]
        hidden = self.row.hidden  # operands that the compiler may not see through
        complement = op == "NOT" and dtype_of(uop).name in hidden
        for place in [0] if complement else _misread_zeros(uop) if hidden else []:
            name = f"hal_hidden_{dtype_of(uop)}"
            self.helper(name, hidden[dtype_of(uop).name])
            operands[place] = f"{name}({operands[place]})"
        a, b, c = operands[:3]
        if op in _INFIX:
            return f"{a} {_INFIX[op]} {b}", False
        if op == "CAST":
            return cast(self, sources[0], dtype, dtype_of(uop))
        if op == "BITCAST":
            return bitcast(self, sources[0], dtype, dtype_of(uop))
        if op == "WHERE":
            return f"{a} ? {b} : {c}", False
        if op == "MIN" or op == "MAX":
            return f"{b} {'<' if op == 'MIN' else '>'} {a} ? {b} : {a}", False
        if op == "ISNAN":
            return f"{a} != {a}", False
        if op == "NOT":
            return (f"!{a}" if dtype.kind == "b" else f"({self.type(dtype)})~{a}"), True
        if op == "NEG":
            return f"-{a}", False
        if op == "SHR":
            return f"{a} >> {_amount(uop.src[1], b)}", False
        if f"{op} {dtype.kind}" in helpers.DIVISIONS:
            return self._division(uop, sources)
        self.features.add("math")
        suffix = self.row.suffixes.get(dtype.name, "")
        return self.row.functions[op].format(*(s.text for s in sources), f=suffix), True

    def _wrapping(self, uop: UOp, sources: list[Expression], reads: frozenset[int]) -> Expression:
        """Return integer arithmetic, computed unsigned, where C defines overflow, and cast back."""
        op, dtype = uop.op, dtype_of(uop)
        kind, unsigned = self.type(dtype), self.unsigned(dtype)
        first = sources[0]
        if op == "ABS" and dtype.kind == "u":
            return first
        wide = ""
        left = f"({first.modular})" if first.modular else first.operand
        if not first.modular and kind != unsigned:
            left = f"({unsigned}){left}"
        if op == "NEG":
            text = f"0 - {left}"
        elif op == "ABS":
            text = f"{first.operand} < 0 ? 0 - {left} : {left}"
        elif op == "SHL":
            text = f"{left} << {_amount(uop.src[1], sources[1].operand)}"
        else:  # C converts the right operand to unsigned, as the left one is
            second = sources[1]
            right = f"({second.modular})" if second.modular else second.operand
            text = f"{left} {_INFIX[op]} {right}"
            if dtype is DTYPES["int32"]:
                long = self.row.types["int64"]
                wide = f"({first.wide})" if first.wide else f"({long}){first.operand}"
                wide += f" {_INFIX[op]} " + (f"({second.wide})" if second.wide else second.operand)
        if kind == unsigned:
            return Expression(text, False, reads)
        return Expression(f"({kind})({text})", True, reads, text, wide)

    def atomic(self, uop: UOp, sources: list[Expression]) -> str:
        """Return a call of the helper that does an atomic operation. Raises: Unsupported."""
        memory, index, *values = sources
        dtype, space = dtype_of(uop.src[0]), self.row.spaces[array_of(uop.src[0]).op]
        what, ordered = _action(uop), is_fence(uop)
        order = f"_{uop.arg}" if ordered else ""
        name = f"hal_{space.name}_{what.lower()}{order}_{dtype.name}"
        body = atomic_body(self.row, uop)
        if body is None:
            raise Unsupported(f"render {uop!r}", "the language has no such atomic operation")
        bits, of_bits = self.bits(dtype) if "bits}" in body else ("", "")
        if dtype.itemsize == 8:
            self.features.add("atomic64")
        kind = self.type(dtype)
        fields = {
            "type": kind,
            "space": space.qualifier,
            "order": ">" if what == "MAX" else "<",
            "memory": str(uop.arg).upper(),
            "fence": f"{self.row.fence}\n" if ordered else "",
            "uint": self.unsigned(dtype),
            "bits": bits,
            "of_bits": of_bits,
        }
        self.helper(
            name,
            helpers.ATOMIC,
            body=body.format(**fields).replace("\n", "\n    "),
            returns="void" if what == "STORE" else kind,
            const="const " if what == "LOAD" else "",
            parameters="".join(f", {kind} {value}" for value in _VALUES.get(what, ("v",))),
            **fields,
        )
        arguments = "".join(f", {value.text}" for value in values)
        return f"{name}(&{self.element(uop, memory, index)}{arguments})"

    def _division(self, uop: UOp, sources: list[Expression]) -> tuple[str, bool]:
        """Return the text of a division or its remainder, and True if it is an atom."""
        op, dtype, divisor = uop.op, dtype_of(uop), uop.src[1]
        a = sources[0].operand
        shift = power_of_two(divisor.arg) if divisor.op == "CONST" else None
        # A shift rounds down, as // does, so the remainder is never negative.
        if shift is not None and (dtype.kind == "u" or op in ("FLOORDIV", "MOD")):
            return (f"{a} >> {shift}" if "DIV" in op else f"{a} & {divisor.arg - 1}"), False
        name, known = f"hal_{op.lower()}_{dtype.name}", self.row.divisions
        template = known.get(f"{op} {dtype.name}") or known[f"{op} {dtype.kind}"]
        self.helper(name, template, type=self.type(dtype), unsigned=self.unsigned(dtype))
        return f"{name}({sources[0].text}, {sources[1].text})", True


def atomic_body(row: Language, uop: UOp) -> str | None:
    """Return the body of the helper for an atomic; None where the language has none."""
    dtype, bodies = dtype_of(uop.src[0]), row.spaces[array_of(uop.src[0]).op].atomics
    what = _action(uop)
    # The most specific body: for the dtype, for its kind, for all.
    for key in (f"{what} {dtype.name}", f"{what} {dtype.kind}", what):
        if key in bodies:
            return bodies[key]
    return None


def _action(uop: UOp) -> str:
    """Return what an atomic does, as in `Space.atomics`: ADD, CAS, LOAD."""
    return uop.arg if uop.op == "ATOMIC" else uop.op.removeprefix("ATOMIC")


def _amount(amount: UOp, text: str) -> str:
    """Return a shift's amount, modulo the width, as the kernel language defines it."""
    mask = dtype_of(amount).itemsize * 8 - 1
    return str(amount.arg & mask) if amount.op == "CONST" else f"({text} & {mask})"

"""How values are spelt in a language of the C family: types, literals, operators, functions."""

from __future__ import annotations

from typing import NamedTuple

from hal_core.dtypes import DTYPES, DType
from hal_core.errors import Unsupported
from hal_core.ir import UOp
from hal_core.render.c import helpers
from hal_core.render.c.language import Language
from hal_core.render.c.words import AXES, filled
from hal_core.render.literals import c_float, c_integer, power_of_two
from hal_core.render.renderer import dtype_of

MEMORY = 0  # what a LOAD reads; a GET reads the id of its variable
_NOTHING: frozenset[int] = frozenset()

_INFIX = {
    "ADD": "+", "SUB": "-", "MUL": "*", "DIV": "/", "AND": "&", "OR": "|", "XOR": "^",
    "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!=",
}  # fmt: skip
_WRAPPING = frozenset({"ADD", "SUB", "MUL", "NEG", "ABS", "SHL"})


class Expression(NamedTuple):
    """Text of a value."""

    text: str
    atom: bool = False  # needs no parentheses as an operand
    reads: frozenset[int] = _NOTHING
    modular: str = ""  # the same before the cast back from unsigned, for a further + - *
    wide: str = ""  # the same in int64, as an index

    @property
    def operand(self) -> str:
        return self.text if self.atom else f"({self.text})"


class Spelling:
    """Spells expressions, and collects what the text needs around them."""

    def __init__(self, row: Language) -> None:
        self.row = row
        self.features: set[str] = set()
        self.helpers: dict[str, str] = {}  # name -> definition

    def type(self, dtype: DType) -> str:
        if dtype is DTYPES["float64"]:
            self.features.add("float64")
        return self.row.types[dtype.name]

    def storage(self, dtype: DType) -> str:
        return self.row.bool_storage if dtype.kind == "b" else self.type(dtype)

    def unsigned(self, dtype: DType) -> str:
        """What integers of this width are computed in; C computes in 32 bits at least."""
        return self.row.types["uint64" if dtype.itemsize == 8 else "uint32"]

    def special(self, kind: str, axis: int) -> str:
        return filled(self.row.specials[kind], AXES[axis])

    def literal(self, value: float, dtype: DType) -> Expression:
        if dtype.kind == "b":
            return Expression("true" if value else "false", atom=True)
        suffix = self.row.suffixes.get(dtype.name, "")
        if dtype.is_integer:
            text = c_integer(int(value), dtype, suffix)
        else:
            self.type(dtype)
            infinity = self.row.infinities.get(dtype.name, ("INFINITY", "NAN"))
            text = c_float(value, dtype, suffix, *infinity)
            if "N" in text:
                self.features.add("math")
        return Expression(text, atom=not text.startswith("-"))

    def expression(self, uop: UOp, sources: list[Expression]) -> Expression:
        """The text of `uop` from the texts of its sources."""
        reads = _NOTHING.union(*(source.reads for source in sources))
        if uop.op == "LOAD":
            text, is_bool = self.element(*sources), dtype_of(uop).kind == "b"
            return Expression(f"{text} != 0" if is_bool else text, not is_bool, reads | {MEMORY})
        if uop.op in _WRAPPING and dtype_of(uop).is_integer:
            return self._wrapping(uop, sources, reads)
        text, atom = self._plain(uop, sources)
        return Expression(text, atom, reads)

    def get(self, uop: UOp, variable: str) -> Expression:
        return Expression(variable, True, frozenset({id(uop.src[0])}))

    def element(self, pointer: Expression, index: Expression) -> str:
        """An index too large for int32 is undefined, so its arithmetic need not wrap: in 64 bits
        compilers see that neighbours in the index are neighbours in memory, and vectorise."""
        wide = index.wide if self.row.wide_indices else ""
        return f"{pointer.text}[{wide or index.text}]"

    def _plain(self, uop: UOp, sources: list[Expression]) -> tuple[str, bool]:
        """Text of a value that needs no unsigned arithmetic, and whether it is an atom."""
        op, dtype = uop.op, dtype_of(uop.src[0])
        a, b, c = ([source.operand for source in sources] + ["", ""])[:3]
        if op in _INFIX:
            return f"{a} {_INFIX[op]} {b}", False
        if op == "CAST":
            return self._cast(dtype, dtype_of(uop), sources[0])
        if op == "BITCAST":
            return self._bitcast(dtype, dtype_of(uop), sources[0])
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
        if op == "FLOORDIV" or op == "MOD":
            return self._division(uop, sources)
        self.features.add("math")
        suffix = self.row.suffixes.get(dtype.name, "")
        return self.row.functions[op].format(*(s.text for s in sources), f=suffix), True

    def _wrapping(self, uop: UOp, sources: list[Expression], reads: frozenset[int]) -> Expression:
        """Integer arithmetic: done unsigned, where C says that it wraps, and cast back."""
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
        else:  # C makes the operand beside an unsigned one unsigned by itself
            second = sources[1]
            right = f"({second.modular})" if second.modular else second.operand
            text = f"{left} {_INFIX[op]} {right}"
            if dtype is DTYPES["int32"]:
                wide = f"({first.wide})" if first.wide else f"(int64_t){first.operand}"
                wide += f" {_INFIX[op]} " + (f"({second.wide})" if second.wide else second.operand)
        if kind == unsigned:
            return Expression(text, False, reads)
        return Expression(f"({kind})({text})", True, reads, text, wide)

    def _cast(self, source: DType, target: DType, value: Expression) -> tuple[str, bool]:
        if source is target:
            return value.text, value.atom
        name = f"{target.name} from {source.name}"
        if name in self.row.casts:
            return f"{self._special_cast(name, source, target)}({value.text})", True
        if target.kind == "b":
            return f"{value.operand} != 0", False
        if source.kind == "f" and target.is_integer:
            return f"{self._float_to_integer(source, target)}({value.text})", True
        return f"({self.type(target)}){value.operand}", True

    def _special_cast(self, name: str, source: DType, target: DType) -> str:
        bits, of_bits = self.bits(DTYPES["float32"])
        function = f"hal_{name.replace(' ', '_')}"
        self._helper(
            function,
            self.row.casts[name],
            type=self.row.types[(target if source is DTYPES["float32"] else source).name],
            float=self.row.types["float32"],
            uint=self.row.types["uint32"],
            bits=bits,
            of_bits=of_bits,
        )
        return function

    def _bitcast(self, source: DType, target: DType, value: Expression) -> tuple[str, bool]:
        """Floats have functions from and to unsigned integers; between integers a cast will do."""
        if source is target:
            return value.text, value.atom
        text, atom = value.text, value.atom
        if source.is_float:
            text, atom = f"{self.bits(source)[0]}({text})", True
        if target.is_float:
            return f"{self.bits(target)[1]}({text})", True
        if source.is_float and target.kind == "u":
            return text, atom
        return f"({self.type(target)}){text if atom else f'({text})'}", True

    def bits(self, dtype: DType) -> tuple[str, str]:
        """Functions between a float and its bits as an unsigned integer."""
        functions = self.row.bits[dtype.name]
        for name in functions:
            if name in self.row.helpers:
                self.helpers.setdefault(name, self.row.helpers[name])
        return functions

    def atomic(self, uop: UOp, sources: list[Expression]) -> str:
        """A call of the helper that does it."""
        memory, index, *values = sources
        dtype, space = dtype_of(uop), self.row.spaces[uop.src[0].op]
        what = str(uop.arg or "CAS")
        name = f"hal_{space.name}_{what.lower()}_{dtype.name}"
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
            "uint": self.unsigned(dtype),
            "bits": bits,
            "of_bits": of_bits,
        }
        self._helper(
            name,
            helpers.ATOMIC,
            body=body.format(**fields).replace("\n", "\n    "),
            parameters=f"{kind} v" if uop.op == "ATOMIC" else f"{kind} expected, {kind} desired",
            **fields,
        )
        arguments = ", ".join(value.text for value in values)
        return f"{name}(&{self.element(memory, index)}, {arguments})"

    def _division(self, uop: UOp, sources: list[Expression]) -> tuple[str, bool]:
        dtype, divisor = dtype_of(uop), uop.src[1]
        a = sources[0].operand
        floor = uop.op == "FLOORDIV"
        shift = power_of_two(divisor.arg) if divisor.op == "CONST" else None
        if shift is not None:  # rounds down, and the rest is never negative: as wanted
            return (f"{a} >> {shift}" if floor else f"{a} & {divisor.arg - 1}"), False
        name = f"hal_{'floordiv' if floor else 'mod'}_{dtype.name}"
        template = (helpers.FLOOR_DIVISION if floor else helpers.MODULO)[dtype.kind]
        self._helper(name, template, type=self.type(dtype), unsigned=self.unsigned(dtype))
        return f"{name}({sources[0].text}, {sources[1].text})", True

    def _float_to_integer(self, source: DType, target: DType) -> str:
        name = f"hal_{target.name}_from_{source.name}"
        self._helper(
            name,
            helpers.FLOAT_TO_INTEGER[target.kind],
            type=self.type(target),
            source=self.type(source),
            # powers of two or 0, which every float dtype holds
            above=self.literal(float(int(target.max) + 1), source).text,
            below=self.literal(float(target.min), source).text,
            max=self.literal(target.max, target).text,
            min=self.literal(target.min, target).text,
        )
        return name

    def _helper(self, name: str, template: str, **fields: str) -> None:
        if name not in self.helpers:
            self.helpers[name] = template.format(name=name, static=self.row.helper, **fields)


def atomic_body(row: Language, uop: UOp) -> str | None:
    """The body of the helper for an ATOMIC or a CAS; None where the language has none."""
    dtype, bodies = dtype_of(uop), row.spaces[uop.src[0].op].atomics
    what = uop.arg or "CAS"
    for key in (f"{what} {dtype.name}", f"{what} {dtype.kind}", what):
        if key in bodies:
            return bodies[key]
    return None


def _amount(amount: UOp, text: str) -> str:
    """A shift's amount, masked to the width."""
    mask = dtype_of(amount).itemsize * 8 - 1
    return str(amount.arg & mask) if amount.op == "CONST" else f"({text} & {mask})"

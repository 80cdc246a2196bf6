"""One engine for every language of the C family; `languages.py` holds what differs.

Nodes are written in execution order. A value used once is written where it is used, any other
gets a `const` of its own. An expression that waits for its use must not see a later write: before
a variable is set, memory is stored to or a block opens, what reads it is given its `const`.
"""

from __future__ import annotations

from collections.abc import Callable

from hal_core.errors import Unsupported
from hal_core.ir import Kernel, Param, UOp
from hal_core.ir.independence import stores_last
from hal_core.render.languages import OPENCL, C, Language
from hal_core.render.names import Names
from hal_core.render.renderer import Renderer, dtype_of
from hal_core.render.spelling import AXES, MEMORY, Expression, Spelling, reserved

_ELSE = "} else {"
_LONGEST = 72  # characters of an expression that is still written inside another


class CFamilyRenderer(Renderer):
    """Renders with one language's row."""

    row: Language

    def options(self, kernel: Kernel) -> tuple[str, ...]:
        contract = self.row.contract_options[kernel.contract]
        return (*self.row.options, contract) if contract else self.row.options

    def _check(self, kernel: Kernel) -> None:
        super()._check(kernel)
        if kernel.name in self.row.keywords or kernel.name in self.row.types.values():
            raise Unsupported(
                f"render kernel {kernel.name!r} as {self.name}",
                "the name is a word of the language",
                got=kernel.name,
                fix="Rename the kernel.",
            )

    def _render(self, kernel: Kernel) -> str:
        return _Text(self.row, kernel).whole()


class CRenderer(CFamilyRenderer):
    """C99 for the CPU, in hal-cpu's calling convention. Compile it with its `options`."""

    name, language, row = "C", "c", C


class OpenCLRenderer(CFamilyRenderer):
    """OpenCL C 1.2."""

    name, language, row = "OpenCL C", "opencl", OPENCL


class _Text:
    """One kernel on its way to text."""

    def __init__(self, row: Language, kernel: Kernel) -> None:
        self.row, self.kernel = row, kernel
        self.spelling = Spelling(row)
        if not kernel.contract:
            self.spelling.features.add("no contract")
        self.names = Names(reserved(row) | {kernel.name})
        self.params = [self.names.take(param.name) for param in kernel.signature.params]
        self.inline = _used_once(kernel)
        self.ends_in = _ends_in(kernel)
        self.chained: set[UOp] = set()  # the IFs that go on as `else if`
        self.values: dict[UOp, Expression] = {}
        self.waiting: dict[UOp, Expression] = {}  # those of `values` that read something
        self.specials: list[str] = []  # at the top of the body, each once
        self.special_names: dict[tuple[str, int], str] = {}
        self.lines: list[str] = []
        self.depth = 0

    def whole(self) -> str:
        for uop in self.kernel.uops:
            self._node(uop)
        fields = [self._fields(param) for param in self.kernel.signature.params]
        blocks = {
            "$attributes": self._attributes(),
            "$arguments": [text for _, text in fields if text],
            "$body": self.specials + self.lines,
            "$independent": [self.row.independent] if stores_last(self.kernel) else [],
        }
        words = {"$name": self.kernel.name, "$parameters": ", ".join(t for t, _ in fields if t)}
        dims = self.kernel.block or self.row.block_dims
        words |= {f"$block_{axis}": str(dim) for axis, dim in zip(AXES, dims, strict=True)}
        frame = []
        for line in self.row.frame.splitlines():
            bare = line.lstrip()
            indent = line[: len(line) - len(bare)]
            for word, meaning in words.items():
                bare = bare.replace(word, meaning)
            frame += [indent + part for part in blocks.get(bare, [bare])]
        features = self.spelling.features | {"always"}
        headers = [line for feature, line in self.row.headers.items() if feature in features]
        parts = ["\n".join(headers), *self.spelling.helpers.values(), "\n".join(frame)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _attributes(self) -> list[str]:
        if self.kernel.block is None or not self.row.block_attribute:
            return []
        x, y, z = self.kernel.block
        return [self.row.block_attribute.format(x=x, y=y, z=z, threads=x * y * z)]

    def _fields(self, param: Param) -> tuple[str, str]:
        """A parameter in the kernel's head, and the line that makes a variable of it."""
        name = self.params[param.position]
        fields = {
            "const": "const " if param.kind == "const pointer" else "",
            "type": self.spelling.storage(param.dtype),
            "name": name,
            "slot": 8 * param.position,
            "position": param.position,
        }
        if not param.is_pointer:
            return self.row.value_parameter.format(**fields), self.row.value_line.format(**fields)
        fields["base"] = self.names.take(f"{name}_base")
        fields["offset"] = self.names.take(f"{name}_offset")
        return self.row.pointer_parameter.format(**fields), self.row.pointer_line.format(**fields)

    def _node(self, uop: UOp) -> None:
        op = uop.op
        if op in _STATEMENTS:
            _STATEMENTS[op](self, uop)
        elif op == "CONST":
            self.values[uop] = self.spelling.literal(uop.arg, dtype_of(uop))
        elif op == "PARAM":
            self._param(uop)
        elif op == "SPECIAL":
            self._special(uop)
        else:
            sources = [self._use(source) for source in uop.src]
            self._place(uop, self.spelling.expression(uop, sources))

    def _param(self, uop: UOp) -> None:
        param, name = self.kernel.signature.params[uop.arg], self.params[uop.arg]
        if param.dtype.kind == "b" and not param.is_pointer:
            self._place(uop, Expression(f"{name} != 0"))
        else:
            self.values[uop] = Expression(name, atom=True)

    def _special(self, uop: UOp) -> None:
        kind, axis = uop.arg
        text = self.spelling.special(kind, axis)
        if not text.isidentifier():
            name = self.special_names.get((kind, axis))
            if name is None:
                name = self.names.take(f"{kind.removesuffix('_idx')}_{AXES[axis]}")
                self.special_names[kind, axis] = name
                self.specials.append(f"const {self.row.types['int32']} {name} = {text};")
            text = name
        self.values[uop] = Expression(text, atom=True)

    def _place(self, uop: UOp, value: Expression) -> None:
        """Keep an expression for its one use, or write it down now."""
        once = self.inline.get(uop)
        if once is None:
            return  # nobody uses it
        if not once or len(value.text) > _LONGEST:
            self._write_down(uop, value)
            return
        self.values[uop] = value
        if value.reads:
            self.waiting[uop] = value

    def _write_down(self, uop: UOp, value: Expression) -> None:
        name = self.names.fresh()
        self._line(f"const {self.spelling.type(dtype_of(uop))} {name} = {value.text};")
        self.values[uop] = Expression(name, atom=True)

    def _write_down_readers(self, of: int | None = None) -> None:
        """No expression may wait across a write to `of` (None: across a block)."""
        for uop, value in list(self.waiting.items()):
            if of is None or of in value.reads:
                del self.waiting[uop]
                self._write_down(uop, value)

    def _use(self, uop: UOp) -> Expression:
        self.waiting.pop(uop, None)
        return self.values[uop]

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def _open(self, line: str) -> None:
        self._line(line + " {")
        self.depth += 1

    def _close(self, uop: UOp) -> None:
        self.waiting.clear()  # what was not used in its block is not used at all
        self.depth -= 1
        self._line("}")

    def _var(self, uop: UOp) -> None:
        name = self._named(uop)
        self._line(f"{self.spelling.type(dtype_of(uop))} {name};")

    def _named(self, uop: UOp) -> str:
        wanted = str(uop.arg)
        name = self.names.take(wanted) if wanted.isidentifier() else self.names.fresh()
        self.values[uop] = Expression(name, atom=True)
        return name

    def _set(self, uop: UOp) -> None:
        variable, value = uop.src
        text = self._use(value).text
        self._write_down_readers(id(variable))
        name = self.values[variable].text
        declaration = f"{self.spelling.type(dtype_of(variable))} {name};"
        if self.lines and self.lines[-1].strip() == declaration:
            self.lines.pop()
            name = declaration[:-1]
        self._line(f"{name} = {text};")

    def _store(self, uop: UOp) -> None:
        pointer, index, value = (self._use(source) for source in uop.src)
        self._write_down_readers(MEMORY)
        self._line(f"{self.spelling.element(pointer, index)} = {value.text};")

    def _if(self, uop: UOp) -> None:
        condition = self._use(uop.src[0]).text
        self._write_down_readers()
        outer = self.ends_in.get(uop)
        if outer is None or self.lines[-1].lstrip() != _ELSE:
            self._open(f"if ({condition})")
            return
        # Alone in its ELSE: compilers limit how deep brackets may nest.
        self.depth -= 1
        self.lines.pop()
        self._open(f"}} else if ({condition})")
        self.chained.add(outer)

    def _else(self, uop: UOp) -> None:
        self._close(uop)
        self.lines.pop()
        self._line(_ELSE)
        self.depth += 1

    def _endif(self, uop: UOp) -> None:
        if uop.src[0] not in self.chained:  # else the ENDIF before this one has closed both
            self._close(uop)

    def _range(self, uop: UOp) -> None:
        start, stop = (self._use(source).text for source in uop.src[:2])
        step = uop.src[2].arg
        self._write_down_readers()
        kind, name = self.spelling.type(dtype_of(uop)), self._named(uop)
        order, sign = ("<", "+") if step > 0 else (">", "-")
        if _stays_in_range(uop):
            advance = f"{sign}{sign}{name}" if abs(step) == 1 else f"{name} {sign}= {abs(step)}"
            self._open(f"for ({kind} {name} = {start}; {name} {order} {stop}; {advance})")
            return
        # Count the turns first: one step more could take the counter past the end of its dtype.
        unsigned = self.spelling.unsigned(dtype_of(uop))
        turns, turn = self.names.fresh(), self.names.fresh()
        low, high = (start, stop) if step > 0 else (stop, start)
        count = f"(({unsigned}){high} - {low} - 1) / {abs(step)} + 1"
        self._line(f"const {unsigned} {turns} = {low} < {high} ? {count} : 0;")
        self._open(f"for ({unsigned} {turn} = 0; {turn} < {turns}; ++{turn})")
        value = f"({kind})(({unsigned}){start} {sign} {turn} * {abs(step)})"
        self._line(f"const {kind} {name} = {value};")


_STATEMENTS: dict[str, Callable[[_Text, UOp], None]] = {
    "VAR": _Text._var,
    "SET": _Text._set,
    "STORE": _Text._store,
    "IF": _Text._if,
    "ELSE": _Text._else,
    "ENDIF": _Text._endif,
    "RANGE": _Text._range,
    "ENDRANGE": _Text._close,
}


def _stays_in_range(uop: UOp) -> bool:
    """Whether a RANGE's counter, one step past its last turn, is still in its dtype."""
    start, stop, step = uop.src
    if abs(step.arg) == 1:
        return True
    if start.op != "CONST" or stop.op != "CONST":
        return False
    turns, dtype = range(start.arg, stop.arg, step.arg), dtype_of(uop)
    return not turns or dtype.min <= turns[-1] + step.arg <= dtype.max


def _ends_in(kernel: Kernel) -> dict[UOp, UOp]:
    """Of every IF whose ENDIF is the last node in another IF's block: that other."""
    pairs = zip(kernel.uops, kernel.uops[1:], strict=False)
    return {a.src[0]: b.src[0] for a, b in pairs if a.op == b.op == "ENDIF"}


def _used_once(kernel: Kernel) -> dict[UOp, bool]:
    """Of every value that is used: whether once, in the block that computes it."""
    uses: dict[UOp, int] = {}
    home: dict[UOp, int] = {}
    blocks, count = [0], 0
    for uop in kernel.uops:
        if uop.op in ("ELSE", "ENDIF", "ENDRANGE"):
            blocks.pop()
        else:
            for source in uop.src:
                many = uop.op == "RANGE" or home[source] != blocks[-1] or _repeats(uop)
                uses[source] = uses.get(source, 0) + (2 if many else 1)
        home[uop] = blocks[-1]
        if uop.op in ("IF", "ELSE", "RANGE"):
            count += 1
            blocks.append(count)
    return {uop: number == 1 for uop, number in uses.items()}


def _repeats(uop: UOp) -> bool:
    """Whether the text of `uop` has an operand twice."""
    if uop.op == "ABS":
        return dtype_of(uop).is_integer
    return uop.op in ("MIN", "MAX", "ISNAN")

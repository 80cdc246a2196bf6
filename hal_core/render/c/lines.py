"""The lines of a text: what values are called, and when an expression is written down.

A value used once is written where it is used, any other gets a `const` of its own. An expression
that waits for its use must not see a later write: before a variable is set, memory is written to
or a block opens, what reads it is given its `const`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_core.ir import UOp
from hal_core.render.c.language import Language
from hal_core.render.c.spelling import Expression, Spelling
from hal_core.render.c.uses import used_once
from hal_core.render.c.words import AXES
from hal_core.render.names import Names
from hal_core.render.renderer import dtype_of

_LONGEST = 72  # characters of an expression that is still written inside another


class Lines:
    """Of one kernel's body, as far as it is written."""

    def __init__(self, row: Language, uops: Sequence[UOp], reserved: frozenset[str]) -> None:
        self.row, self.spelling, self.names = row, Spelling(row), Names(reserved)
        self.inline = used_once(uops)
        self.values: dict[UOp, Expression] = {}
        self.waiting: dict[UOp, Expression] = {}  # those of `values` that read something
        self.special_names: dict[str, str] = {}  # by their text
        self.specials: list[str] = []  # what is declared at `top`, each once
        self.top = 0  # the line where the threads' own code begins
        self.lines: list[str] = []
        self.depth = 0

    def at_top(self, uop: UOp, text: str) -> Expression:
        """A number of this thread: computed once, before its code."""
        if text.isidentifier():
            return Expression(text, atom=True)
        name = self.special_names.get(text)
        if name is None:
            kind, axis = uop.arg if uop.op == "SPECIAL" else ("thread", None)
            wanted = kind.removesuffix("_idx")
            name = self.names.take(wanted if axis is None else f"{wanted}_{AXES[axis]}")
            self.special_names[text] = name
        line = f"const {self.row.types['int32']} {name} = {text};"
        if line not in self.specials:
            self.specials.append(line)
        return Expression(name, atom=True)

    def write_specials(self) -> None:
        indent = "    " * self.depth
        self.lines[self.top : self.top] = [indent + line for line in self.specials]
        self.specials = []

    def place(self, uop: UOp, value: Expression) -> None:
        """Keep an expression for its one use, or write it down now."""
        once = self.inline.get(uop)
        if once is None:
            return  # nobody uses it
        if not once or len(value.text) > _LONGEST:
            self.write_down(uop, value)
            return
        self.values[uop] = value
        if value.reads:
            self.waiting[uop] = value

    def write_down(self, uop: UOp, value: Expression) -> None:
        name = self.names.fresh()
        self.line(f"const {self.spelling.type(dtype_of(uop))} {name} = {value.text};")
        self.values[uop] = Expression(name, atom=True)

    def write_down_readers(self, of: int | None = None) -> None:
        """No expression may wait across a write to `of` (None: across a block)."""
        for uop, value in list(self.waiting.items()):
            if of is None or of in value.reads:
                del self.waiting[uop]
                self.write_down(uop, value)

    def use(self, uop: UOp) -> Expression:
        self.waiting.pop(uop, None)
        return self.values[uop]

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def named(self, uop: UOp, wanted: str) -> str:
        name = self.names.take(wanted) if wanted.isidentifier() else self.names.fresh()
        self.values[uop] = Expression(name, atom=True)
        return name

    def open(self, line: str) -> None:
        self.line(line + " {")
        self.depth += 1

    def close(self, uop: UOp) -> None:
        self.waiting.clear()  # what was not used in its block is not used at all
        self.depth -= 1
        self.line("}")

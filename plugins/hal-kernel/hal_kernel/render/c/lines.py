"""Write the lines of a kernel's body, and decide which expressions get a line of their own.

A value that is used once is written where it is used, any other becomes a `const`:

    v = LOAD x[i]             const float v0 = x[i];
    y[i] = v * v + 1          y[i] = v0 * v0 + 1.0f;

A pending expression, one not yet written, must not read what is written later. So before a variable
is set, memory is written or a block opens, the pending expressions that read it become a `const`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_kernel.ir import UOp
from hal_kernel.ir.uop import dtype_of
from hal_kernel.render.c.expression import Expression
from hal_kernel.render.c.language import Language
from hal_kernel.render.c.operations import Operations
from hal_kernel.render.c.uses import used_once
from hal_kernel.render.c.words import AXES
from hal_kernel.render.names import Names

_LONGEST = 72  # characters; a longer expression gets its own line


class Lines:
    """The lines of one kernel's body that are written so far."""

    def __init__(self, row: Language, uops: Sequence[UOp], reserved: frozenset[str]) -> None:
        self.row, self.spelling, self.names = row, Operations(row), Names(reserved)
        self.inline = used_once(uops)
        self.values: dict[UOp, Expression] = {}
        self.pending: dict[UOp, Expression] = {}  # those of `values` that read, not yet written
        self.special_names: dict[str, str] = {}  # expression -> its name
        self.specials: list[str] = []  # declarations to insert at line `top`
        self.top = 0  # the line where the code of the threads begins
        self.lines: list[str] = []
        self.depth = 0

    def at_top(self, uop: UOp, text: str) -> Expression:
        """Return the name of an index of this thread, which is computed once, above its code."""
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
        """Insert the indices of the thread where its code begins."""
        indent = "    " * self.depth
        self.lines[self.top : self.top] = [indent + line for line in self.specials]
        self.specials = []

    def place(self, uop: UOp, value: Expression) -> None:
        """Keep an expression for its one use, or give it a line now."""
        once = self.inline.get(uop)
        if once is None:
            return  # no node uses it
        if not once or len(value.text) > _LONGEST:
            self.write_down(uop, value)
            return
        self.values[uop] = value
        if value.reads:
            self.pending[uop] = value

    def write_down(self, uop: UOp, value: Expression) -> None:
        """Give an expression a line and a name of its own."""
        name = self.names.fresh()
        self.line(f"const {self.spelling.type(dtype_of(uop))} {name} = {value.text};")
        wide = self.names.fresh() if value.wide and self.row.wide_indices else ""
        if wide:
            self.line(f"const {self.row.types['int64']} {wide} = {value.wide};")
        self.values[uop] = Expression(name, atom=True, wide=wide)

    def write_down_readers(self, of: int | None = None) -> None:
        """Write down the pending readers of `of`, which is about to change (None: all of them)."""
        for uop, value in list(self.pending.items()):
            if of is None or of in value.reads:
                del self.pending[uop]
                self.write_down(uop, value)

    def use(self, uop: UOp) -> Expression:
        """Return the text of a value, which is pending no longer."""
        self.pending.pop(uop, None)
        return self.values[uop]

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def named(self, uop: UOp, wanted: str) -> str:
        """Give a variable, an array or a counter its name, `wanted` if that is free."""
        name = self.names.take(wanted) if wanted.isidentifier() else self.names.fresh()
        self.values[uop] = Expression(name, atom=True)
        return name

    def open(self, line: str) -> None:
        """Begin a block in braces."""
        self.line(line + " {")
        self.depth += 1

    def close(self, uop: UOp) -> None:
        """End a block."""
        self.pending.clear()  # a value that was not used in its block is never used
        self.depth -= 1
        self.line("}")

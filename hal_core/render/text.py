"""One engine for every language of the C family; `languages/` holds what differs.

Nodes are written in execution order. A value used once is written where it is used, any other
gets a `const` of its own. An expression that waits for its use must not see a later write: before
a variable is set, memory is written to or a block opens, what reads it is given its `const`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from hal_core.ir import Kernel, UOp
from hal_core.ir.fission import block_threads
from hal_core.ir.uop import LEAVES, OPENS
from hal_core.render.languages.language import Language
from hal_core.render.names import Names
from hal_core.render.renderer import dtype_of
from hal_core.render.spelling import AXES, MEMORY, Expression, Spelling

_ELSE = "} else {"
_LONGEST = 72  # characters of an expression that is still written inside another


class _Loop(NamedTuple):
    """An open loop of the text, that over a block's threads included."""

    op: str
    label: list[str]  # in front of its end, where something goes there


class Text:
    """The lines of one kernel's body."""

    def __init__(
        self, row: Language, kernel: Kernel, uops: tuple[UOp, ...], reserved: frozenset[str]
    ) -> None:
        self.row, self.kernel, self.uops = row, kernel, uops
        self.spelling = Spelling(row)
        self.names = Names(reserved | {kernel.name})
        self.params = [self.names.take(param.name) for param in kernel.signature.params]
        self.inline = _used_once(uops)
        self.ends_in = _ends_in(uops)
        self.chained: set[UOp] = set()  # the IFs that go on as `else if`
        self.values: dict[UOp, Expression] = {}
        self.waiting: dict[UOp, Expression] = {}  # those of `values` that read something
        self.special_names: dict[str, str] = {}  # by their text
        self.specials: list[str] = []  # what is declared at `top`, each once
        self.top = 0  # the line where the threads' own code begins
        self.shared: list[str] = []
        self.lines: list[str] = []
        self.loops: list[_Loop] = [_Loop("KERNEL", [])]
        self.depth = 0

    def write(self) -> None:
        for uop in self.uops:
            self._node(uop)
        self._write_specials()
        self.lines += self.loops[0].label

    def _node(self, uop: UOp) -> None:
        op = uop.op
        if op in _STATEMENTS:
            _STATEMENTS[op](self, uop)
        elif op == "CONST":
            self.values[uop] = self.spelling.literal(uop.arg, dtype_of(uop))
        elif op == "PARAM":
            self._param(uop)
        elif op == "SPECIAL":
            self.values[uop] = self._at_top(uop, self.spelling.special(*uop.arg))
        else:
            sources = [self._use(source) for source in uop.src]
            self._place(uop, self.spelling.expression(uop, sources))

    # -- values

    def _param(self, uop: UOp) -> None:
        param, name = self.kernel.signature.params[uop.arg], self.params[uop.arg]
        if param.dtype.kind == "b" and not param.is_pointer:
            self._place(uop, Expression(f"{name} != 0"))
        else:
            self.values[uop] = Expression(name, atom=True)

    def _at_top(self, uop: UOp, text: str) -> Expression:
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

    def _write_specials(self) -> None:
        indent = "    " * self.depth
        self.lines[self.top : self.top] = [indent + line for line in self.specials]
        self.specials = []

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

    def _named(self, uop: UOp, wanted: str) -> str:
        name = self.names.take(wanted) if wanted.isidentifier() else self.names.fresh()
        self.values[uop] = Expression(name, atom=True)
        return name

    # -- variables and memory

    def _var(self, uop: UOp) -> None:
        name = self._named(uop, str(uop.arg))
        self._line(f"{self.spelling.type(dtype_of(uop))} {name};")

    def _spill(self, uop: UOp) -> None:
        """A variable of which every thread of the block has one."""
        name = self._named(uop, str(uop.arg))
        kind, count = self.spelling.type(dtype_of(uop)), block_threads(self.kernel)
        self._line(self.row.shared.format(type=kind, name=name, count=count))

    def _get(self, uop: UOp) -> None:
        self._place(uop, self.spelling.get(uop, self._variable(uop.src[0])))

    def _variable(self, uop: UOp) -> str:
        name = self.values[uop].text
        if uop.op == "VAR":
            return name
        return f"{name}[{self._at_top(uop, self.row.thread_number).text}]"

    def _set(self, uop: UOp) -> None:
        variable, value = uop.src
        text = self._use(value).text
        self._write_down_readers(id(variable))
        name = self._variable(variable)
        declaration = f"{self.spelling.type(dtype_of(variable))} {name};"
        if self.lines and self.lines[-1].strip() == declaration:
            self.lines.pop()
            name = declaration[:-1]
        self._line(f"{name} = {text};")

    def _shared(self, uop: UOp) -> None:
        name, count = uop.arg
        name, kind = self._named(uop, str(name)), self.spelling.storage(dtype_of(uop))
        self.shared.append(self.row.shared.format(type=kind, name=name, count=count))

    def _store(self, uop: UOp) -> None:
        pointer, index, value = (self._use(source) for source in uop.src)
        self._write_down_readers(MEMORY)
        self._line(f"{self.spelling.element(pointer, index)} = {value.text};")

    def _atomic(self, uop: UOp) -> None:
        call = self.spelling.atomic(uop, [self._use(source) for source in uop.src])
        self._write_down_readers(MEMORY)
        if uop in self.inline:
            self._write_down(uop, Expression(call))
        else:
            self._line(f"{call};")

    def _barrier(self, uop: UOp) -> None:
        self._write_down_readers(MEMORY)
        self._line(self.row.barrier)

    # -- control flow

    def _open(self, line: str) -> None:
        self._line(line + " {")
        self.depth += 1

    def _close(self, uop: UOp) -> None:
        self.waiting.clear()  # what was not used in its block is not used at all
        self.depth -= 1
        self._line("}")

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
        self.loops.append(_Loop(uop.op, []))
        kind, name = self.spelling.type(dtype_of(uop)), self._named(uop, str(uop.arg))
        order, sign = ("<", "+") if step > 0 else (">", "-")
        if _stays_in_range(uop):
            advance = f"{sign}{sign}{name}" if abs(step) == 1 else f"{name} {sign}= {abs(step)}"
            self._open(f"for ({kind} {name} = {start}; {name} {order} {stop}; {advance})")
            return
        # Count the turns first: one step more could take the counter past the end of its dtype.
        unsigned = self.spelling.unsigned(dtype_of(uop))
        turns, turn = self.names.fresh(), self.names.fresh()
        low, high = (start, stop) if step > 0 else (stop, start)
        distance = f"({unsigned}){high}" + (f" - {low}" if low != "0" else "")
        count = f"({distance} - 1) / {abs(step)} + 1"
        self._line(f"const {unsigned} {turns} = {low} < {high} ? {count} : 0;")
        self._open(f"for ({unsigned} {turn} = 0; {turn} < {turns}; ++{turn})")
        way = f"{turn} * {abs(step)}"
        if start != "0" or sign == "-":
            way = f"({unsigned}){start} {sign} {way}"
        self._line(f"const {kind} {name} = ({kind})({way});")

    def _loop(self, uop: UOp) -> None:
        self._write_down_readers()
        self.loops.append(_Loop(uop.op, []))
        self._open("for (;;)")

    def _end_loop(self, uop: UOp) -> None:
        self.loops.pop()
        self._close(uop)

    def _leave(self, uop: UOp) -> None:
        self._line(f"{uop.op.lower()};")

    def _return(self, uop: UOp) -> None:
        """Where threads are loops, the next turn: of the thread, or outside of one the block."""
        if not self.row.threads:
            self._line("return;")
            return
        loop = next(loop for loop in reversed(self.loops) if loop.op in ("THREADS", "KERNEL"))
        if loop is self.loops[-1]:
            self._line("continue;")
            return
        if not loop.label:
            wanted = "next_thread" if loop.op == "THREADS" else "next_block"
            loop.label.append(f"{self.names.take(wanted)}:;")
        self._line(f"goto {loop.label[0].removesuffix(':;')};")

    def _threads(self, uop: UOp) -> None:
        self._write_down_readers()
        for line in self.row.threads.splitlines():
            if line != "$independent":
                self._line(line)
            elif uop.arg:
                self._line(self.row.independent)
        self.depth += 1
        self.top = len(self.lines)
        self.loops.append(_Loop(uop.op, []))

    def _end_threads(self, uop: UOp) -> None:
        self._write_specials()
        for label in self.loops.pop().label:
            self._line(label)
        self._close(uop)

    def _nothing(self, uop: UOp) -> None:
        """An ASSERT is tested in checked mode only."""


_STATEMENTS: dict[str, Callable[[Text, UOp], None]] = {
    "VAR": Text._var,
    "SPILL": Text._spill,
    "GET": Text._get,
    "SET": Text._set,
    "SHARED": Text._shared,
    "STORE": Text._store,
    "ATOMIC": Text._atomic,
    "CAS": Text._atomic,
    "BARRIER": Text._barrier,
    "IF": Text._if,
    "ELSE": Text._else,
    "ENDIF": Text._endif,
    "RANGE": Text._range,
    "ENDRANGE": Text._end_loop,
    "LOOP": Text._loop,
    "ENDLOOP": Text._end_loop,
    "BREAK": Text._leave,
    "CONTINUE": Text._leave,
    "RETURN": Text._return,
    "THREADS": Text._threads,
    "ENDTHREADS": Text._end_threads,
    "ASSERT": Text._nothing,
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


def _ends_in(uops: tuple[UOp, ...]) -> dict[UOp, UOp]:
    """Of every IF whose ENDIF is the last node in another IF's block: that other."""
    pairs = itertools.pairwise(uops)
    return {a.src[0]: b.src[0] for a, b in pairs if a.op == b.op == "ENDIF"}


def _used_once(uops: tuple[UOp, ...]) -> dict[UOp, bool]:
    """Of every value that is used: whether once, in the block that computes it."""
    uses: dict[UOp, int] = {}
    home: dict[UOp, int] = {}
    blocks, count = [0], 0
    for uop in uops:
        closes = uop.op == "ELSE" or uop.op.startswith("END")
        if closes:
            blocks.pop()
        elif uop.op not in LEAVES and uop.op != "ASSERT":
            for source in uop.src:
                many = uop.op == "RANGE" or home[source] != blocks[-1] or _repeats(uop)
                uses[source] = uses.get(source, 0) + (2 if many else 1)
        home[uop] = blocks[-1]
        if uop.op in OPENS or uop.op == "THREADS":
            count += 1
            blocks.append(count)
    return {uop: number == 1 for uop, number in uses.items()}


def _repeats(uop: UOp) -> bool:
    """Whether the text of `uop` has an operand twice."""
    if uop.op == "ABS":
        return dtype_of(uop).is_integer
    return uop.op in ("MIN", "MAX", "ISNAN")

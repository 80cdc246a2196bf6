"""Write the body of a kernel in a language of the C family; `language.py` says what differs.

Nodes are written in execution order, each by the method of its op: `on_RANGE` writes a RANGE.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from hal_core.signature import CONST_POINTER
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.uop import SUBGROUP, dtype_of
from hal_kernel.ir.vectors import vectors
from hal_kernel.render.c.expression import Expression
from hal_kernel.render.c.language import Language
from hal_kernel.render.c.lines import Lines
from hal_kernel.render.c.operations import MEMORY
from hal_kernel.render.c.uses import ends_in, low_bits, short_loops, stays_in_range
from hal_kernel.render.renderer import writers

_ELSE = "} else {"


class _Loop(NamedTuple):
    """An open loop of the text; the loop over the threads and the whole kernel count as loops."""

    op: str
    label: list[str]  # the label at the end of the loop, if a `goto` needs it; else empty


class Text(Lines):
    """The body of one kernel."""

    def __init__(
        self, row: Language, kernel: Kernel, uops: tuple[UOp, ...], reserved: frozenset[str]
    ) -> None:
        super().__init__(row, uops, reserved | {kernel.name})
        self.kernel, self.uops = kernel, uops
        self.params = [self.names.take(param.name) for param in kernel.signature.params]
        self.ends_in = ends_in(uops)
        self.vectors = vectors(uops) if row.vector else {}
        self.low = low_bits(uops) if row.low_bits else set()
        self.short = short_loops(uops) if row.unroll else set()
        self.lanes = {lane for lanes in self.vectors.values() for lane in lanes[1:]}
        self.chained: set[UOp] = set()  # the IFs whose ELSE is written as `else if`
        self.shared: list[str] = []  # declarations
        self.shared_nbytes = 0  # of those
        self.tables: list[str] = []  # likewise, ahead of the kernel
        self.loops: list[_Loop] = [_Loop("KERNEL", [])]

    def write(self) -> None:
        """Write every node, then insert the indices of the thread above them."""
        for uop in self.uops:
            if uop in self.lanes:  # its first element's node has written it
                continue
            writer = _WRITERS.get(uop.op)
            if uop in self.vectors:
                self.write_vector(uop, self.vectors[uop])
            elif writer is not None:
                writer(self, uop)
            else:
                sources = [self.use(source) for source in uop.src]
                expression = self.spelling.expression(uop, sources)
                if uop in self.low:
                    expression = self.spelling.low_bits(uop, expression)
                self.place(uop, expression)
        self.write_specials()
        self.lines += self.loops[0].label

    def on_CONST(self, uop: UOp) -> None:
        self.values[uop] = self.spelling.literal(uop.arg, dtype_of(uop))

    def on_PARAM(self, uop: UOp) -> None:
        param, name = self.kernel.signature.params[uop.arg], self.params[uop.arg]
        if param.dtype.kind == "b" and not param.is_pointer:
            self.place(uop, Expression(f"{name} != 0"))
        else:
            self.values[uop] = Expression(name, atom=True)

    def on_SPECIAL(self, uop: UOp) -> None:
        if uop.arg[0] in SUBGROUP:
            self.spelling.features.add("subgroups")
        self.values[uop] = self.at_top(uop, self.spelling.special(*uop.arg))

    # -- variables and memory

    def on_VAR(self, uop: UOp) -> None:
        name = self.named(uop, str(uop.arg))
        self.line(f"{self.spelling.type(dtype_of(uop))} {name};")

    def on_SPILL(self, uop: UOp) -> None:
        # An array with an element for each thread of the block, whose values cross a barrier.
        name = self.named(uop, str(uop.arg))
        kind, count = self.spelling.type(dtype_of(uop)), self.kernel.most_threads
        template = self.row.spill or self.row.shared
        self.line(template.format(type=kind, name=name, count=count))

    def on_GET(self, uop: UOp) -> None:
        self.place(uop, self.spelling.get(uop, self._variable(uop.src[0])))

    def on_SET(self, uop: UOp) -> None:
        variable, value = uop.src
        text = self.use(value).text
        self.write_down_readers(id(variable))
        name = self._variable(variable)
        declaration = f"{self.spelling.type(dtype_of(variable))} {name};"
        # A declaration just before becomes an initialisation: `float x;` and `x = 1;` one line.
        if self.lines and self.lines[-1].strip() == declaration:
            self.lines.pop()
            name = declaration[:-1]
        self.line(f"{name} = {text};")

    def _variable(self, uop: UOp) -> str:
        """Return the text of a variable; for a SPILL, this thread's element."""
        name = self.values[uop].text
        if uop.op == "VAR":
            return name
        return f"{name}[{self.at_top(uop, self.row.thread_number).text}]"

    def on_SHARED(self, uop: UOp) -> None:
        name, count = uop.arg
        name, kind = self.named(uop, str(name)), self.spelling.storage(dtype_of(uop))
        words = {"type": kind, "name": name, "count": count, "offset": self.shared_nbytes}
        self.shared.append(self.row.shared.format(**words))
        self.shared_nbytes += -(-count * dtype_of(uop).itemsize // 16) * 16

    def on_LOCAL(self, uop: UOp) -> None:
        (name, count), dtype = uop.arg, dtype_of(uop)
        if dtype.itemsize == 1:
            count = max(count, self.row.local_nbytes)
        kind = self.spelling.storage(dtype)
        self.line(f"{kind} {self.named(uop, str(name))}[{count}];")

    def on_TABLE(self, uop: UOp) -> None:
        (name, values), dtype = uop.arg, dtype_of(uop)
        elements = (
            str(int(value)) if dtype.kind == "b" else self.spelling.literal(value, dtype).text
            for value in values
        )
        text = self.row.table.format(
            type=self.spelling.storage(dtype),
            # A file's names must not be those of the headers, as y0, and a kernel's names may.
            name=self.named(uop, f"hal_table_{name}"),
            count=len(values),
            values=", ".join(elements),
        )
        # Compilers limit the length of a line.
        self.tables += textwrap.wrap(text, 100, subsequent_indent="    ", break_long_words=False)

    def on_VIEW(self, uop: UOp) -> None:
        (array,) = uop.src
        params = self.kernel.signature.params
        const = array.op == "PARAM" and params[array.arg].kind == CONST_POINTER
        kind = f"{'const ' if const else ''}{self.spelling.aliasing(dtype_of(uop))}"
        space = self.row.spaces[array.op].qualifier
        self.values[uop] = Expression(f"(({space}{kind} *){self.values[array].text})", atom=True)

    def on_STORE(self, uop: UOp) -> None:
        pointer, index, value = (self.use(source) for source in uop.src)
        self.write_down_readers(MEMORY)
        self.line(f"{self.spelling.element(uop, pointer, index)} = {value.text};")

    def write_vector(self, uop: UOp, lanes: Sequence[UOp]) -> None:
        """Write the LOADs or STOREs of a vector as one call."""
        type_, helper, first = self.spelling.vector(uop, *map(self.use, uop.src[:2]))
        if uop.op == "STORE":
            values = ", ".join(self.use(lane.src[2]).text for lane in lanes)
            self.write_down_readers(MEMORY)
            self.line(f"{helper}({first}, {values});")
            return
        name = self.names.fresh()
        self.line(f"const {type_} {name} = {helper}({first});")
        for position, lane in enumerate(lanes):
            element = f"{name}.v[{position}]"
            is_bool = dtype_of(lane).kind == "b"
            self.values[lane] = Expression(f"{element} != 0" if is_bool else element, not is_bool)

    def on_ATOMIC(self, uop: UOp) -> None:
        call = self.spelling.atomic(uop, [self.use(source) for source in uop.src])
        self.write_down_readers(MEMORY)
        if uop in self.inline:
            self.write_down(uop, Expression(call))
        else:
            self.line(f"{call};")

    on_CAS = on_ATOMICLOAD = on_ATOMICSTORE = on_ATOMIC

    def on_BARRIER(self, uop: UOp) -> None:
        self.write_down_readers(MEMORY)
        self.line(self.row.barrier)

    def on_FENCE(self, uop: UOp) -> None:
        self.write_down_readers(MEMORY)
        self.line(self.row.fence)

    def on_SHUFFLE(self, uop: UOp) -> None:
        """Write it down here: where it is used, some threads may have left."""
        value, lane = (self.use(source).text for source in uop.src)
        dtype = dtype_of(uop)
        template = self.row.shuffle[dtype.itemsize == 8]
        self.spelling.features.add("subgroups")
        self.write_down(
            uop, Expression(template.format(value, lane, type=self.spelling.type(dtype)))
        )

    def on_BALLOT(self, uop: UOp) -> None:
        self.spelling.features.add("subgroups")
        self.write_down(uop, Expression(self.row.ballot.format(self.use(uop.src[0]).text)))

    # -- branches

    def on_IF(self, uop: UOp) -> None:
        condition = self.use(uop.src[0]).text
        self.write_down_readers()
        outer = self.ends_in.get(uop)
        if outer is None or self.lines[-1].lstrip() != _ELSE:
            self.open(f"if ({condition})")
            return
        # The IF is alone in an ELSE: `else if`, because compilers limit how deep blocks may nest.
        self.depth -= 1
        self.lines.pop()
        self.open(f"}} else if ({condition})")
        self.chained.add(outer)

    def on_ELSE(self, uop: UOp) -> None:
        self.close(uop)
        self.lines.pop()
        self.line(_ELSE)
        self.depth += 1

    def on_ENDIF(self, uop: UOp) -> None:
        if uop.src[0] not in self.chained:  # else the inner ENDIF has closed both
            self.close(uop)

    # -- loops

    def on_RANGE(self, uop: UOp) -> None:
        start, stop = (self.use(source).text for source in uop.src[:2])
        step = uop.src[2].arg
        self.write_down_readers()
        self.loops.append(_Loop(uop.op, []))
        kind, name = self.spelling.type(dtype_of(uop)), self.named(uop, str(uop.arg))
        order, sign = ("<", "+") if step > 0 else (">", "-")
        if stays_in_range(uop):
            advance = f"{sign}{sign}{name}" if abs(step) == 1 else f"{name} {sign}= {abs(step)}"
            self.open_for(uop, f"{kind} {name} = {start}; {name} {order} {stop}; {advance}")
            return
        # Count the iterations first: the step after the last may take the counter out of its dtype.
        unsigned = self.spelling.unsigned(dtype_of(uop))
        iterations, iteration = self.names.fresh(), self.names.fresh()
        low, high = (start, stop) if step > 0 else (stop, start)
        distance = f"({unsigned}){high}" + (f" - {low}" if low != "0" else "")
        count = f"({distance} - 1) / {abs(step)} + 1"
        self.line(f"const {unsigned} {iterations} = {low} < {high} ? {count} : 0;")
        head = f"{unsigned} {iteration} = 0; {iteration} < {iterations}; ++{iteration}"
        self.open_for(uop, head)
        way = f"{iteration} * {abs(step)}"
        if start != "0" or sign == "-":
            way = f"({unsigned}){start} {sign} {way}"
        self.line(f"const {kind} {name} = ({kind})({way});")

    def open_for(self, uop: UOp, head: str) -> None:
        """Open the loop of a RANGE; compilers take the pragma on the line before `for` only."""
        if uop in self.short:
            self.line(self.row.unroll)
        self.open(f"for ({head})")

    def on_LOOP(self, uop: UOp) -> None:
        self.write_down_readers()
        self.loops.append(_Loop(uop.op, []))
        self.open("for (;;)")

    def on_ENDRANGE(self, uop: UOp) -> None:
        self.loops.pop()
        self.close(uop)

    on_ENDLOOP = on_ENDRANGE

    def on_BREAK(self, uop: UOp) -> None:
        self.line("break;")

    def on_CONTINUE(self, uop: UOp) -> None:
        self.line("continue;")

    def on_RETURN(self, uop: UOp) -> None:
        if not self.row.threads:
            self.line("return;")
            return
        # Threads are loop iterations here: go on with the next thread, or outside of regions with
        # the next block.
        loop = next(loop for loop in reversed(self.loops) if loop.op in ("THREADS", "KERNEL"))
        if loop is self.loops[-1]:
            self.line("continue;")
            return
        if not loop.label:
            wanted = "next_thread" if loop.op == "THREADS" else "next_block"
            loop.label.append(f"{self.names.take(wanted)}:;")
        self.line(f"goto {loop.label[0].removesuffix(':;')};")

    def on_THREADS(self, uop: UOp) -> None:
        self.write_down_readers()
        self.write_specials()
        for line in self.row.rows.splitlines():
            self.line(line)
        self.depth += 1
        self.line(self.row.threads)
        self.depth += 1
        self.top = len(self.lines)
        self.loops.append(_Loop(uop.op, []))

    def on_ENDTHREADS(self, uop: UOp) -> None:
        self.write_specials()
        for label in self.loops.pop().label:
            self.line(label)
        self.close(uop)
        self.close(uop)


_WRITERS = writers(Text)

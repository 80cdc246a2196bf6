"""Render PTX for NVIDIA GPUs. Their driver assembles it, so no compiler and libdevice is needed."""

from __future__ import annotations

from typing import NamedTuple

from hal_core.dtypes import DTYPES, DType
from hal_cuda.render.memory import Accesses
from hal_cuda.render.text import kind_of, type_of
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.expand import expand
from hal_kernel.ir.uop import dtype_of
from hal_kernel.render.renderer import Renderer, writers

_SPECIALS = {"block_idx": "ctaid", "thread_idx": "tid", "block_dim": "ntid", "grid_dim": "nctaid"}
_MAX_BLOCK = "1024, 1, 1"  # bounds the product of the three; the shape is free


class PTXRenderer(Renderer):
    """Render PTX of one version, for one architecture and all later ones."""

    name, language, subgroup, serves_source = "PTX", "ptx", 32, True
    dtypes = frozenset(DTYPES.values())

    def __init__(self, target: str = "sm_80", version: str = "8.0") -> None:
        self.target, self.version = target, version

    def _render(self, kernel: Kernel) -> str:
        head = f".version {self.version}\n.target {self.target}\n.address_size 64\n\n"
        return head + _Entry(expand(kernel)).whole()


class _Loop(NamedTuple):
    """The labels of a loop, and the instructions that step to its next iteration."""

    begin: str
    following: str  # where a CONTINUE jumps to
    end: str
    advance: tuple[str, ...]


class _Entry(Accesses):
    """The text of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.specials: dict[tuple[str, int], str] = {}
        self.branches: dict[UOp, str] = {}  # IF -> the label of its ELSE or ENDIF
        self.loops: dict[UOp, _Loop] = {}

    def whole(self) -> str:
        """Return the text of the entry, its declarations included."""
        # Read at the top: a first use inside a branch would set the register there only.
        for uop in self.kernel.uops:
            if uop.op == "SPECIAL" and uop.arg not in self.specials:
                self.specials[uop.arg] = self._special(*uop.arg)
        for uop in self.kernel.uops:
            writer = _WRITERS.get(uop.op)
            if writer is not None:
                writer(self, uop)
            else:
                self.values[uop] = self.value(uop)
        self.line("ret")
        kernel = self.kernel
        block = kernel.block
        bound = f".reqntid {', '.join(map(str, block))}" if block else f".maxntid {_MAX_BLOCK}"
        head = [
            *self.tables,
            f".visible .entry {kernel.name}(",
            *self.parameters(),
            ")",
            bound,
            "{",
        ]
        registers = self.declarations()
        return "\n".join([*head, *registers, *self.arrays, "", *self.lines, "}", ""])

    def _special(self, kind: str, axis: int) -> str:
        """Return the register, or the number, of an index of a thread or block."""
        if kind == "block_dim" and self.kernel.block:
            return str(self.kernel.block[axis])
        if kind != "global_idx":
            return self.let("mov.u32", "b32", f"%{_SPECIALS[kind]}.{'xyz'[axis]}")
        parts = []
        for part in ("block_idx", "block_dim", "thread_idx"):
            if (part, axis) not in self.specials:
                self.specials[part, axis] = self._special(part, axis)
            parts.append(self.specials[part, axis])
        return self.let("mad.lo.s32", "b32", *parts)

    # -- variables and control flow

    def on_SPECIAL(self, uop: UOp) -> None:
        self.values[uop] = self.specials[uop.arg]

    def on_VAR(self, uop: UOp) -> None:
        self.values[uop] = self.register(kind_of(dtype_of(uop)))

    def on_SET(self, uop: UOp) -> None:
        variable, value = (self.values[source] for source in uop.src)
        self.line(f"mov.{kind_of(dtype_of(uop.src[0]))} {variable}, {value}")

    def on_BARRIER(self, uop: UOp) -> None:
        self.line("bar.sync 0")

    def _jump(self, label: str, condition: str = "") -> None:
        self.line(f"{condition and f'@{condition} '}bra {label}")

    def on_IF(self, uop: UOp) -> None:
        self.branches[uop] = self.name("else")
        condition = self.values[uop.src[0]]
        if uop.src[0].op == "CONST":
            condition = self.let("mov.pred", "pred", condition)
        self._jump(self.branches[uop], f"!{condition}")

    def on_ELSE(self, uop: UOp) -> None:
        (opener,) = uop.src
        end = self.name("end")
        self._jump(end)
        self.label(self.branches[opener])
        self.branches[opener] = end

    def on_ENDIF(self, uop: UOp) -> None:
        self.label(self.branches[uop.src[0]])

    def _open_loop(self, uop: UOp, advance: tuple[str, ...] = ()) -> _Loop:
        loop = _Loop(self.name("loop"), self.name("next"), self.name("end"), advance)
        self.loops[uop] = loop
        self.label(loop.begin)
        return loop

    def on_LOOP(self, uop: UOp) -> None:
        self._open_loop(uop)

    def on_RANGE(self, uop: UOp) -> None:
        start, stop = (self.values[source] for source in uop.src[:2])
        dtype, step = dtype_of(uop), int(uop.src[2].arg)
        register = kind_of(dtype)
        counter = self.values[uop] = self.let(f"mov.{register}", register, start)
        step_on = f"add.s{register[1:]} {counter}, {counter}, {step}"
        # The step after the last may take the counter out of its dtype. With steps of 1 it cannot,
        # and narrow dtypes are counted in 32 bits. Otherwise the iterations are counted.
        if abs(step) == 1 or dtype.itemsize < 4:
            loop = self._open_loop(uop, (step_on,))
            kind = type_of(dtype) if dtype.itemsize >= 4 else "s32"
            more = self.test("lt" if step > 0 else "gt", kind, counter, stop)
        else:
            iterations = self._iterations(dtype, start, stop, step)
            count_down = f"sub.u{register[1:]} {iterations}, {iterations}, 1"
            loop = self._open_loop(uop, (step_on, count_down))
            more = self.test("ne", register, iterations, "0")
        self._jump(loop.end, f"!{more}")

    def _iterations(self, dtype: DType, start: str, stop: str, step: int) -> str:
        """Return the number of iterations: length / step, rounded up, without overflow."""
        register = kind_of(dtype)
        unsigned = f"u{register[1:]}"
        low, high = (start, stop) if step > 0 else (stop, start)
        some = self.test("lt", type_of(dtype), low, high)
        distance = self.let(f"sub.{unsigned}", register, high, low)
        short = self.let(f"sub.{unsigned}", register, distance, "1")
        jumps = self.let(f"div.{unsigned}", register, short, str(abs(step)))
        more = self.let(f"add.{unsigned}", register, jumps, "1")
        return self.select(some, register, more, "0")

    def on_ENDRANGE(self, uop: UOp) -> None:
        loop = self.loops[uop.src[0]]
        self.label(loop.following)
        for text in loop.advance:
            self.line(text)
        self._jump(loop.begin)
        self.label(loop.end)

    on_ENDLOOP = on_ENDRANGE

    def on_BREAK(self, uop: UOp) -> None:
        self._jump(self.loops[uop.src[0]].end)

    def on_CONTINUE(self, uop: UOp) -> None:
        self._jump(self.loops[uop.src[0]].following)

    def on_RETURN(self, uop: UOp) -> None:
        self.line("ret")


_WRITERS = writers(_Entry)

"""PTX for NVIDIA GPUs, which their driver assembles. Needs no compiler and no libdevice."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hal_core.dtypes import DTYPES, DType
from hal_core.ir import Kernel, UOp
from hal_core.ir.expand import expand
from hal_core.render.ptx.memory import ACCESSES, Memory
from hal_core.render.ptx.text import kind_of, type_of
from hal_core.render.renderer import Renderer, dtype_of

_SPECIALS = {"block_idx": "ctaid", "thread_idx": "tid", "block_dim": "ntid", "grid_dim": "nctaid"}
_MAX_BLOCK = "1024, 1, 1"  # threads; the shape is free


class PTXRenderer(Renderer):
    """PTX of one version for one architecture and those after it."""

    name, language = "PTX", "ptx"
    dtypes = frozenset(DTYPES.values())

    def __init__(self, target: str = "sm_80", version: str = "8.0") -> None:
        self.target, self.version = target, version

    def _render(self, kernel: Kernel) -> str:
        head = f".version {self.version}\n.target {self.target}\n.address_size 64\n\n"
        return head + _Entry(expand(kernel)).whole()


class _Loop(NamedTuple):
    """Labels, and the instructions that step to the next turn."""

    begin: str
    following: str  # where a CONTINUE goes on
    end: str
    advance: tuple[str, ...]


class _Entry(Memory):
    """One kernel on its way to text."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.specials: dict[tuple[str, int], str] = {}
        self.branches: dict[UOp, str] = {}  # IF -> where its other side goes on
        self.loops: dict[UOp, _Loop] = {}

    def whole(self) -> str:
        for uop in self.kernel.uops:  # all of them on top: they may be first used in a branch
            if uop.op == "SPECIAL" and uop.arg not in self.specials:
                self.specials[uop.arg] = self._special(*uop.arg)
        for uop in self.kernel.uops:
            self._node(uop)
        self.line("ret")
        kernel = self.kernel
        block = kernel.block
        bound = f".reqntid {', '.join(map(str, block))}" if block else f".maxntid {_MAX_BLOCK}"
        head = [f".visible .entry {kernel.name}(", *self.parameters(), ")", bound, "{"]
        registers = self.declarations()
        return "\n".join([*head, *registers, *self.shared, "", *self.lines, "}", ""])

    def _special(self, kind: str, axis: int) -> str:
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

    # nodes

    def _node(self, uop: UOp) -> None:
        if uop.op in _STATEMENTS:
            _STATEMENTS[uop.op](self, uop)
        elif uop.op == "SPECIAL":
            self.values[uop] = self.specials[uop.arg]
        else:
            self.values[uop] = self.access(uop) if uop.op in ACCESSES else self.value(uop)

    # variables and control

    def _var(self, uop: UOp) -> None:
        self.values[uop] = self.register(kind_of(dtype_of(uop)))

    def _set(self, uop: UOp) -> None:
        variable, value = (self.values[source] for source in uop.src)
        self.line(f"mov.{kind_of(dtype_of(uop.src[0]))} {variable}, {value}")

    def _barrier(self, uop: UOp) -> None:
        self.line("bar.sync 0")

    def _jump(self, label: str, condition: str = "") -> None:
        self.line(f"{condition and f'@{condition} '}bra {label}")

    def _if(self, uop: UOp) -> None:
        self.branches[uop] = self.name("else")
        condition = self.values[uop.src[0]]
        if uop.src[0].op == "CONST":
            condition = self.let("mov.pred", "pred", condition)
        self._jump(self.branches[uop], f"!{condition}")

    def _else(self, uop: UOp) -> None:
        (opener,) = uop.src
        end = self.name("end")
        self._jump(end)
        self.label(self.branches[opener])
        self.branches[opener] = end

    def _endif(self, uop: UOp) -> None:
        self.label(self.branches[uop.src[0]])

    def _open_loop(self, uop: UOp, advance: tuple[str, ...] = ()) -> _Loop:
        loop = _Loop(self.name("loop"), self.name("next"), self.name("end"), advance)
        self.loops[uop] = loop
        self.label(loop.begin)
        return loop

    def _loop(self, uop: UOp) -> None:
        self._open_loop(uop)

    def _range(self, uop: UOp) -> None:
        start, stop = (self.values[source] for source in uop.src[:2])
        dtype, step = dtype_of(uop), int(uop.src[2].arg)
        register = kind_of(dtype)
        counter = self.values[uop] = self.let(f"mov.{register}", register, start)
        step_on = f"add.s{register[1:]} {counter}, {counter}, {step}"
        # The step after the last could leave the dtype, but for steps of 1 and narrow dtypes.
        if abs(step) == 1 or dtype.itemsize < 4:
            loop = self._open_loop(uop, (step_on,))
            kind = type_of(dtype) if dtype.itemsize >= 4 else "s32"
            more = self.test("lt" if step > 0 else "gt", kind, counter, stop)
        else:
            turns = self._turns(dtype, start, stop, step)
            count_down = f"sub.u{register[1:]} {turns}, {turns}, 1"
            loop = self._open_loop(uop, (step_on, count_down))
            more = self.test("ne", register, turns, "0")
        self._jump(loop.end, f"!{more}")

    def _turns(self, dtype: DType, start: str, stop: str, step: int) -> str:
        """How often a loop runs: distance, rounded up, over step; without leaving the dtype."""
        register = kind_of(dtype)
        unsigned = f"u{register[1:]}"
        low, high = (start, stop) if step > 0 else (stop, start)
        some = self.test("lt", type_of(dtype), low, high)
        distance = self.let(f"sub.{unsigned}", register, high, low)
        short = self.let(f"sub.{unsigned}", register, distance, "1")
        jumps = self.let(f"div.{unsigned}", register, short, str(abs(step)))
        more = self.let(f"add.{unsigned}", register, jumps, "1")
        return self.select(some, register, more, "0")

    def _close_loop(self, uop: UOp) -> None:
        loop = self.loops[uop.src[0]]
        self.label(loop.following)
        for text in loop.advance:
            self.line(text)
        self._jump(loop.begin)
        self.label(loop.end)

    def _break(self, uop: UOp) -> None:
        self._jump(self.loops[uop.src[0]].end)

    def _continue(self, uop: UOp) -> None:
        self._jump(self.loops[uop.src[0]].following)

    def _return(self, uop: UOp) -> None:
        self.line("ret")

    def _nothing(self, uop: UOp) -> None:
        """An ASSERT is for checked mode."""


_STATEMENTS: dict[str, Callable[[_Entry, UOp], None]] = {
    "VAR": _Entry._var,
    "SET": _Entry._set,
    "STORE": _Entry.store,
    "BARRIER": _Entry._barrier,
    "ASSERT": _Entry._nothing,
    "IF": _Entry._if,
    "ELSE": _Entry._else,
    "ENDIF": _Entry._endif,
    "RANGE": _Entry._range,
    "ENDRANGE": _Entry._close_loop,
    "LOOP": _Entry._loop,
    "ENDLOOP": _Entry._close_loop,
    "BREAK": _Entry._break,
    "CONTINUE": _Entry._continue,
    "RETURN": _Entry._return,
}

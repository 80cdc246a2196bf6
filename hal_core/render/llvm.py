"""LLVM IR for the CPU, in the calling convention of hal-cpu; text that LLVM 15 and later read.

Names with a dot are ours, names without are the user's parameters. No target is named: the
backend sets triple and data layout.
"""

from __future__ import annotations

from collections.abc import Callable

from hal_core.dtypes import DType
from hal_core.ir import Kernel, UOp
from hal_core.ir.independence import stores_last
from hal_core.render.llvm_values import Values, literal, type_of
from hal_core.render.names import Names
from hal_core.render.renderer import Renderer, dtype_of

_AXES = "xyz"
# No access of one turn of the loop over x waits for another turn's.
_PARALLEL = """
!0 = distinct !{}
!1 = !{!"llvm.loop.parallel_accesses", !0}
!2 = distinct !{!2, !1}
"""
_PARAMETERS = "ptr %hal.args, ptr %hal.launch, i64 %hal.first, i64 %hal.last"


class LLVMRenderer(Renderer):
    """LLVM IR; one exported function, everything else internal."""

    name, language = "LLVM IR", "llvm"

    def _render(self, kernel: Kernel) -> str:
        return _Module(kernel).whole()


class _Loop:
    """A loop being written: the names of its blocks and how its counter goes on."""

    def __init__(self, name: str, kind: str, advance: str, step: str) -> None:
        self.name, self.kind, self.advance, self.step = name, kind, advance, step


class _Module(Values):
    """One kernel on its way to text."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel.contract, stores_last(kernel))
        self.kernel = kernel
        names = Names(frozenset())
        self.params = [names.take(param.name) for param in kernel.signature.params]
        self.block = "hal.entry"  # the label that the next instruction belongs to
        self.variables: list[str] = []  # allocas, which LLVM wants in the entry block
        self.specials: dict[tuple[str, int], str] = {}
        self.loops: list[_Loop] = []
        self.branches: dict[UOp, str] = {}  # IF -> the name its labels start with

    def whole(self) -> str:
        self._enter()
        for uop in self.kernel.uops:
            self._node(uop)
        self._leave()
        head = f"define void @{self.kernel.name}({_PARAMETERS}) {{"
        parts = [*self.declarations, "", *self.helpers.values(), head, "hal.entry:"]
        parts += [*self.variables, *self.lines, "}"]
        return "\n".join(parts).lstrip("\n") + "\n" + (_PARALLEL if self.access else "")

    # text

    def _label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def _open_loop(
        self, name: str, kind: str, start: str, stop: str, order: str, step: str = "1",
        advance: str = "add nsw",
    ) -> str:  # fmt: skip
        """`for (name = start; name ORDER stop; name += step)`; the counter."""
        before = self.block
        self.line(f"br label %{name}.head")
        self._label(f"{name}.head")
        following = f"[ %{name}.next, %{name}.step ]"
        self.let(f"phi {kind} [ {start}, %{before} ], {following}", f"%{name}")
        more = self.let(f"icmp {order} {kind} %{name}, {stop}", f"%{name}.more")
        self.line(f"br i1 {more}, label %{name}.body, label %{name}.end")
        self._label(f"{name}.body")
        self.loops.append(_Loop(name, kind, advance, step))
        return f"%{name}"

    def _close_loop(self, metadata: str = "") -> None:
        loop = self.loops.pop()
        name = loop.name
        self.line(f"br label %{name}.step")
        self._label(f"{name}.step")
        self.let(f"{loop.advance} {loop.kind} %{name}, {loop.step}", f"%{name}.next")
        self.line(f"br label %{name}.head{metadata}")
        self._label(f"{name}.end")

    # the frame: arguments, the loop over blocks, the loops over threads

    def _enter(self) -> None:
        for param, name in zip(self.kernel.signature.params, self.params, strict=True):
            slot = self.let(f"getelementptr i8, ptr %hal.args, i64 {8 * param.position}")
            self._load_argument(name, "ptr" if param.is_pointer else param.dtype, slot)
        dims = ["grid.dim.x", "grid.dim.y", "grid.dim.z"]
        fixed = self.kernel.block
        for axis in range(3):
            if fixed is None:
                dims.append(f"block.dim.{_AXES[axis]}")
            else:
                self.specials["block_dim", axis] = str(fixed[axis])
        for position, name in enumerate(dims):
            slot = self.let(f"getelementptr i32, ptr %hal.launch, i64 {position}")
            kind = "grid_dim" if position < 3 else "block_dim"
            self.specials[kind, position % 3] = self.let(f"load i32, ptr {slot}", f"%{name}")
        wide = [self.let(f"zext i32 {self.specials['grid_dim', axis]} to i64") for axis in (0, 1)]
        block = self._open_loop("each.block", "i64", "%hal.first", "%hal.last", "slt")
        rows = self.let(f"sdiv i64 {block}, {wide[0]}")
        places = (
            self.let(f"srem i64 {block}, {wide[0]}"),
            self.let(f"srem i64 {rows}, {wide[1]}"),
            self.let(f"sdiv i64 {rows}, {wide[1]}"),
        )
        first = []
        for axis, place in enumerate(places):
            name = f"%block.{_AXES[axis]}"
            index = self.let(f"trunc i64 {place} to i32", name)
            self.specials["block_idx", axis] = index
            dim = self.specials["block_dim", axis]
            first.append(self.let(f"mul nsw i32 {index}, {dim}"))
        for axis in (2, 1, 0):
            name, dim = f"thread.{_AXES[axis]}", self.specials["block_dim", axis]
            thread = self._open_loop(name, "i32", "0", dim, "slt")
            self.specials["thread_idx", axis] = thread
            # The launch checks that it fits: no wrap, which is what lets LLVM vectorise.
            place = self.let(f"add nsw i32 {first[axis]}, {thread}", f"%global.{_AXES[axis]}")
            self.specials["global_idx", axis] = place

    def _load_argument(self, name: str, kind: DType | str, slot: str) -> None:
        if isinstance(kind, str):
            self.let(f"load {kind}, ptr {slot}", f"%{name}")
        elif kind.kind == "b":
            byte = self.let(f"load i8, ptr {slot}")
            self.let(f"icmp ne i8 {byte}, 0", f"%{name}")
        else:
            self.let(f"load {type_of(kind)}, ptr {slot}", f"%{name}")

    def _leave(self) -> None:
        self._close_loop(", !llvm.loop !2" if self.access else "")
        for _ in range(3):
            self._close_loop()
        self.line("ret void")

    # nodes

    def _node(self, uop: UOp) -> None:
        op = uop.op
        if op in _STATEMENTS:
            _STATEMENTS[op](self, uop)
        elif op == "PARAM":
            self.values[uop] = f"%{self.params[uop.arg]}"
        elif op == "CONST":
            self.values[uop] = literal(uop.arg, dtype_of(uop))
        elif op == "SPECIAL":
            self.values[uop] = self.specials[uop.arg]
        else:
            operands = [self.values[source] for source in uop.src]
            self.values[uop] = self.value(uop, operands)

    def _var(self, uop: UOp) -> None:
        name = f"%{_word(uop.arg)}.{self.number()}"
        self.variables.append(f"  {name} = alloca {type_of(dtype_of(uop))}")
        self.values[uop] = name

    def _set(self, uop: UOp) -> None:
        variable, value = uop.src
        kind = type_of(dtype_of(variable))
        self.line(f"store {kind} {self.values[value]}, ptr {self.values[variable]}")

    def _if(self, uop: UOp) -> None:
        name = self.branches[uop] = f"if.{self.number()}"
        condition = self.values[uop.src[0]]
        self.line(f"br i1 {condition}, label %{name}.then, label %{name}.else")
        self._label(f"{name}.then")

    def _else(self, uop: UOp) -> None:
        name = self.branches[uop.src[0]]
        self.line(f"br label %{name}.end")
        self._label(f"{name}.else")

    def _endif(self, uop: UOp) -> None:
        name = self.branches[uop.src[0]]
        if f"{name}.else:" not in self.lines:
            self._else(uop)
        self.line(f"br label %{name}.end")
        self._label(f"{name}.end")

    def _range(self, uop: UOp) -> None:
        start, stop = (self.values[source] for source in uop.src[:2])
        dtype, step = dtype_of(uop), uop.src[2].arg
        kind, signed = type_of(dtype), dtype.kind == "i"
        order = ("s" if signed else "u") + ("lt" if step > 0 else "gt")
        name = f"{_word(uop.arg)}.{self.number()}"
        if abs(step) == 1:
            wraps = "add nsw" if signed else "add nuw" if step > 0 else "add"
            text = self._open_loop(name, kind, start, stop, order, str(step), wraps)
            self.values[uop] = text
            return
        # Count the turns first: one step more could take the counter past the end of its dtype.
        low, high = (start, stop) if step > 0 else (stop, start)
        some = self.let(f"icmp {order} {kind} {start}, {stop}")
        distance = self.let(f"sub {kind} {high}, {low}")
        short = self.let(f"sub {kind} {distance}, 1")
        jumps = self.let(f"udiv {kind} {short}, {abs(step)}")
        more = self.let(f"add {kind} {jumps}, 1")
        turns = self.let(f"select i1 {some}, {kind} {more}, {kind} 0")
        turn = self._open_loop(name, kind, "0", turns, "ult", advance="add nuw")
        offset = self.let(f"mul {kind} {turn}, {step}")
        self.values[uop] = self.let(f"add {kind} {start}, {offset}")

    def _endrange(self, uop: UOp) -> None:
        self._close_loop()


def _word(arg: object) -> str:
    """A variable's own name where it has one that LLVM reads."""
    return str(arg) if str(arg).isascii() and str(arg).isidentifier() else "v"


_STATEMENTS: dict[str, Callable[[_Module, UOp], None]] = {
    "VAR": _Module._var,
    "SET": _Module._set,
    "STORE": _Module.store,
    "IF": _Module._if,
    "ELSE": _Module._else,
    "ENDIF": _Module._endif,
    "RANGE": _Module._range,
    "ENDRANGE": _Module._endrange,
}

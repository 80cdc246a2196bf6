"""Control flow in LLVM IR: labels, jumps, loops and branches."""

from __future__ import annotations

from typing import NamedTuple

from hal_core.ir import UOp
from hal_core.render.llvm.memory import Memory, word
from hal_core.render.llvm.values import type_of
from hal_core.render.renderer import dtype_of


class _Loop(NamedTuple):
    """A counted loop being written: the stem of its labels and how its counter goes on."""

    name: str
    kind: str
    advance: str
    step: str


class Blocks(Memory):
    """Writes LLVM's blocks; a block has a label and ends with one jump."""

    def __init__(self, contract: bool, half: bool, block_threads: int) -> None:
        super().__init__(contract, half, block_threads)
        self.block = "hal.entry"  # the label that the next instruction belongs to
        self.left = False  # behind a jump, where no instruction can stand
        self.loops: list[_Loop] = []
        self.frame_loop = ""  # whose next turn is the next thread, or outside of THREADS block
        self.named: dict[UOp, str] = {}  # IF, RANGE or LOOP -> the stem of its labels
        self.halves: set[UOp] = set()  # the IFs that have an ELSE

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block, self.left = name, False

    def jump(self, name: str, metadata: str = "") -> None:
        """Nothing where no thread gets to: it has jumped elsewhere."""
        if not self.left:
            self.line(f"br label %{name}{metadata}")
        self.left = True

    def fork(self, condition: str, name: str, other: str) -> None:
        self.line(f"br i1 {condition}, label %{name}, label %{other}")

    # counted loops

    def open_loop(
        self, name: str, kind: str, start: str, stop: str, order: str, step: str = "1",
        advance: str = "add nsw",
    ) -> str:  # fmt: skip
        """`for (name = start; name ORDER stop; name += step)`; the counter."""
        before = self.block
        self.jump(f"{name}.head")
        self.label(f"{name}.head")
        following = f"[ %{name}.next, %{name}.step ]"
        self.let(f"phi {kind} [ {start}, %{before} ], {following}", f"%{name}")
        more = self.let(f"icmp {order} {kind} %{name}, {stop}", f"%{name}.more")
        self.fork(more, f"{name}.body", f"{name}.end")
        self.label(f"{name}.body")
        self.loops.append(_Loop(name, kind, advance, step))
        return f"%{name}"

    def close_loop(self, metadata: str = "") -> None:
        name, kind, advance, step = self.loops.pop()
        self.jump(f"{name}.step")
        self.label(f"{name}.step")
        self.let(f"{advance} {kind} %{name}, {step}", f"%{name}.next")
        self.jump(f"{name}.head", metadata)
        self.label(f"{name}.end")

    def range(self, uop: UOp) -> None:
        start, stop = (self.values[source] for source in uop.src[:2])
        dtype, step = dtype_of(uop), uop.src[2].arg
        kind, signed = type_of(dtype), dtype.kind == "i"
        order = ("s" if signed else "u") + ("lt" if step > 0 else "gt")
        name = self.named[uop] = f"{word(uop.arg)}.{self.number()}"
        if abs(step) == 1:
            wraps = "add nsw" if signed else "add nuw" if step > 0 else "add"
            counter = self.open_loop(name, kind, start, stop, order, str(step), wraps)
            self.values[uop] = counter
            return
        # Count the turns first: one step more could take the counter past the end of its dtype.
        low, high = (start, stop) if step > 0 else (stop, start)
        some = self.let(f"icmp {order} {kind} {start}, {stop}")
        distance = self.let(f"sub {kind} {high}, {low}")
        short = self.let(f"sub {kind} {distance}, 1")
        jumps = self.let(f"udiv {kind} {short}, {abs(step)}")
        more = self.let(f"add {kind} {jumps}, 1")
        turns = self.let(f"select i1 {some}, {kind} {more}, {kind} 0")
        turn = self.open_loop(name, kind, "0", turns, "ult", advance="add nuw")
        offset = self.let(f"mul {kind} {turn}, {step}")
        self.values[uop] = self.let(f"add {kind} {start}, {offset}")

    def end_range(self, uop: UOp) -> None:
        self.close_loop()

    # endless loops

    def loop(self, uop: UOp) -> None:
        name = self.named[uop] = f"loop.{self.number()}"
        self.jump(f"{name}.step")
        self.label(f"{name}.step")

    def end_loop(self, uop: UOp) -> None:
        name = self.named[uop.src[0]]
        self.jump(f"{name}.step")
        self.label(f"{name}.end")

    def break_(self, uop: UOp) -> None:
        self.jump(f"{self.named[uop.src[0]]}.end")

    def continue_(self, uop: UOp) -> None:
        self.jump(f"{self.named[uop.src[0]]}.step")

    def return_(self, uop: UOp) -> None:
        self.jump(f"{self.frame_loop}.step")

    # branches

    def if_(self, uop: UOp) -> None:
        name = self.named[uop] = f"if.{self.number()}"
        self.fork(self.values[uop.src[0]], f"{name}.then", f"{name}.else")
        self.label(f"{name}.then")

    def else_(self, uop: UOp) -> None:
        self.halves.add(uop.src[0])
        name = self.named[uop.src[0]]
        self.jump(f"{name}.end")
        self.label(f"{name}.else")

    def end_if(self, uop: UOp) -> None:
        if uop.src[0] not in self.halves:
            self.else_(uop)
        name = self.named[uop.src[0]]
        self.jump(f"{name}.end")
        self.label(f"{name}.end")

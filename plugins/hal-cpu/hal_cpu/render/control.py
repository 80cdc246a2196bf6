"""Write control flow in LLVM IR: labels, jumps, loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hal_cpu.render.memory import Memory, word
from hal_cpu.render.values import type_of
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import dtype_of

NOT_UNROLLED = '!{{!"llvm.loop.unroll.disable"}}'


class _Loop(NamedTuple):
    """A counted loop that is open: the stem of its labels, and how its counter advances."""

    name: str
    kind: str
    advance: str
    step: str
    advance_others: Callable[[], object] | None = None  # the counters beside it


class Blocks(Memory):
    """Write LLVM's basic blocks; each has a label and ends with one jump."""

    def __init__(self, half: bool, block_threads: int) -> None:
        super().__init__(half, block_threads)
        self.block = "hal.entry"  # the label that the next instruction belongs to
        self.left = False  # True after a jump, where LLVM allows no instruction
        self.loops: list[_Loop] = []
        self.endless = 0  # LOOPs that are open
        self.frame_loop = ""  # a RETURN goes on with its next iteration: the next thread, or block
        self.named: dict[UOp, str] = {}  # IF, RANGE or LOOP -> the stem of its labels
        self.halves: set[UOp] = set()  # the IFs whose ELSE is written
        self.filling: set[UOp] = set()  # the RANGEs that LLVM should not unroll
        self.rolled: set[UOp] = set()  # those of the loop over threads that is being written
        self.metadata: list[str] = []
        self.facts: dict[str, str] = {}  # the text of a metadata node -> its name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block, self.left = name, False

    def jump(self, name: str, metadata: str = "") -> None:
        """Jump, unless the basic block has ended with a jump already."""
        if not self.left:
            self.line(f"br label %{name}{metadata}")
        self.left = True

    def branch(self, condition: str, name: str, other: str) -> None:
        self.line(f"br i1 {condition}, label %{name}, label %{other}")

    # -- counted loops

    def open_loop(
        self, name: str, kind: str, start: str, stop: str, order: str, step: str = "1",
        advance: str = "add nsw", others: Sequence[tuple[str, str]] = (),
    ) -> str:  # fmt: skip
        """Open `for (name = start; name ORDER stop; name += step)`; return the counter.

        `others` are names and starts of counters beside it, whose `.next` the caller writes.
        """
        before = self.block
        self.jump(f"{name}.head")
        self.label(f"{name}.head")
        for counter, first in ((name, start), *others):
            following = f"[ %{counter}.next, %{name}.step ]"
            self.let(f"phi {kind} [ {first}, %{before} ], {following}", f"%{counter}")
        more = self.let(f"icmp {order} {kind} %{name}, {stop}", f"%{name}.more")
        self.branch(more, f"{name}.body", f"{name}.end")
        self.label(f"{name}.body")
        self.loops.append(_Loop(name, kind, advance, step))
        return f"%{name}"

    def close_loop(self, metadata: str = "") -> None:
        """End the innermost counted loop; its jump back carries `metadata`."""
        name, kind, advance, step, advance_others = self.loops.pop()
        self.jump(f"{name}.step")
        self.label(f"{name}.step")
        if advance_others is not None:
            advance_others()
        self.let(f"{advance} {kind} %{name}, {step}", f"%{name}.next")
        self.jump(f"{name}.head", metadata)
        self.label(f"{name}.end")

    def on_RANGE(self, uop: UOp) -> None:
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
        # Count the iterations first: the step after the last may take the counter out of its dtype.
        low, high = (start, stop) if step > 0 else (stop, start)
        some = self.let(f"icmp {order} {kind} {start}, {stop}")
        distance = self.let(f"sub {kind} {high}, {low}")
        short = self.let(f"sub {kind} {distance}, 1")
        jumps = self.let(f"udiv {kind} {short}, {abs(step)}")
        more = self.let(f"add {kind} {jumps}, 1")
        iterations = self.let(f"select i1 {some}, {kind} {more}, {kind} 0")
        iteration = self.open_loop(name, kind, "0", iterations, "ult", advance="add nuw")
        offset = self.let(f"mul {kind} {iteration}, {step}")
        self.values[uop] = self.let(f"add {kind} {start}, {offset}")

    def on_ENDRANGE(self, uop: UOp) -> None:
        loop = uop.src[0]
        fact = NOT_UNROLLED if loop in self.filling or loop in self.rolled else ""
        self.close_loop(self.loop_facts(self.fact(fact)) if fact else "")

    # -- what LLVM is told of a loop

    def fact(self, text: str) -> str:
        """Return the name of a metadata node that several loops share."""
        if text not in self.facts:
            self.facts[text] = self.add_metadata(text)
        return self.facts[text]

    def loop_facts(self, *facts: str) -> str:
        """Return the metadata that the jump back of a loop carries, made of these nodes."""
        whole = self.add_metadata(f"distinct !{{{{!{{0}}, {', '.join(facts)}}}}}")
        return f", !llvm.loop {whole}"

    def add_metadata(self, text: str) -> str:
        """Add a metadata node, in whose text `{0}` is its own number; return its name."""
        number = len(self.metadata)
        self.metadata.append(f"!{number} = {text.format(number)}")
        return f"!{number}"

    # -- endless loops

    def on_LOOP(self, uop: UOp) -> None:
        self.endless += 1
        name = self.named[uop] = f"loop.{self.number()}"
        self.jump(f"{name}.step")
        self.label(f"{name}.step")

    def on_ENDLOOP(self, uop: UOp) -> None:
        self.endless -= 1
        name = self.named[uop.src[0]]
        self.jump(f"{name}.step")
        self.label(f"{name}.end")

    def on_BREAK(self, uop: UOp) -> None:
        self.jump(f"{self.named[uop.src[0]]}.end")

    def on_CONTINUE(self, uop: UOp) -> None:
        self.jump(f"{self.named[uop.src[0]]}.step")

    def on_RETURN(self, uop: UOp) -> None:
        self.jump(f"{self.frame_loop}.step")

    # -- branches

    def on_IF(self, uop: UOp) -> None:
        self.halves.discard(uop)  # a region may be written twice
        name = self.named[uop] = f"if.{self.number()}"
        self.branch(self.values[uop.src[0]], f"{name}.then", f"{name}.else")
        self.label(f"{name}.then")

    def on_ELSE(self, uop: UOp) -> None:
        self.halves.add(uop.src[0])
        name = self.named[uop.src[0]]
        self.jump(f"{name}.end")
        self.label(f"{name}.else")

    def on_ENDIF(self, uop: UOp) -> None:
        if uop.src[0] not in self.halves:  # on_IF jumps to an else label in any case
            self.on_ELSE(uop)
        name = self.named[uop.src[0]]
        self.jump(f"{name}.end")
        self.label(f"{name}.end")

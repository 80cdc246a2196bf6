"""Write lines of LLVM IR, and take back what was known of values when a block ends.

An instruction that has no effect stands ahead of all loops that do not change its operands, and is
written once where it is known, for all bodies of a kernel:

    for each gang:                       inverse = 1 / w
        q = x * (1 / w)          ->      for each gang:
                                             q = x * inverse
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
METADATA = """\
!0 = !{!"branch_weights", i32 2000, i32 1}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.unroll.disable"}
"""
_LIKELY, _ROLLED = ", !prof !0", ", !llvm.loop !1"
_NAME = re.compile(r"%[\w.]+")
_FREE = {  # instructions that may run where their results are not needed
    "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "icmp", "select", "fadd",
    "fsub", "fmul", "fdiv", "fneg", "fcmp", "sext", "zext", "trunc", "fpext", "fptrunc", "sitofp",
    "uitofp", "fptosi", "fptoui", "bitcast", "ptrtoint", "getelementptr", "extractelement",
    "insertelement", "shufflevector", "extractvalue", "insertvalue",
}  # fmt: skip


class Log(list[tuple[dict[Any, Any], Any, Any]]):
    """Changes of dictionaries, in order: a dictionary, its key, and what it had, or None."""

    def back(self, mark: int) -> None:
        """Take back all changes since the log had so many."""
        for known, key, value in reversed(self[mark:]):
            if value is None:
                del known[key]
            else:
                known[key] = value
        del self[mark:]


class Scoped(dict[K, V], Generic[K, V]):
    """A dictionary whose changes are logged."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def put(self, key: K, value: V) -> None:
        self._log.append((self, key, self.get(key)))
        self[key] = value

    def drop(self, key: K) -> None:
        self._log.append((self, key, self.pop(key)))


class Text:
    """The lines of a function, its frame, and what stands around it."""

    def __init__(self) -> None:
        self.count = 0
        self.lines: list[str] = []  # behind those in `parts`
        self.parts: list[list[str] | dict[str, str]] = []
        self.loops: list[dict[str, str]] = []  # that are open: instruction ahead of it -> its name
        self.depth = 0  # how many of them
        self.headers: list[str] = []  # of the open loops; "" if LLVM may unroll one
        self.levels: dict[str, int] = {}  # name -> how many loops were open around it, if any
        self.least = 0  # open loops that what is loaded here must stay in
        self.log = Log()  # of what is known in a block only
        self.cache: Scoped[object, str] = Scoped(self.log)  # what was written -> its name
        self.changes = 0  # of memory, so far
        self.frame: list[str] = []  # the allocas of the entry block
        self.declarations: dict[str, None] = {}
        self.helpers: dict[str, str] = {}  # name -> definition
        self.left = False  # True behind a jump, where LLVM allows no instruction

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str, least: int | None = None, free: bool = False) -> str:
        """Write an instruction and return the name of its result.

        `least`: the number of open loops that a load must stay in, counted from the outermost. An
        instruction without effects, or a call that is `free` of them, needs none; any other stays
        in all of them.
        """
        known = self.cache.get(text)
        if known is not None:
            return known
        free = free or text.partition(" ")[0] in _FREE
        name, level, here = f"%v.{self.count}", least or 0, self.depth
        if not free and least is None:
            level = here
            self.lines.append(f"  {name} = {text}")
        else:
            key = text if free else (text, self.changes)
            if not free and (known := self.cache.get(key)) is not None:
                return known
            levels = self.levels
            for operand in _NAME.findall(text):
                if operand in levels and levels[operand] > level:
                    level = levels[operand]
            ahead = self.loops[level] if level < here else {}
            if text in ahead:
                return ahead[text]
            ahead[text] = name
            if level >= here:
                self.lines.append(f"  {name} = {text}")
                self.log.append((self.cache, key, None))  # as `put` does; it was not known
                self.cache[key] = name
        self.count += 1
        if level:
            self.levels[name] = level
        return name

    def open_loop(self, label: str, unrolls: bool = False) -> None:
        """Begin a loop at a label, which is jumped to from here; LLVM may unroll it or not."""
        self.loops.append({})
        self.depth += 1
        self.parts += [self.lines, self.loops[-1]]
        self.lines = []
        self.jump(label)
        self.label(label)
        self.headers.append("" if unrolls else label)
        self.changes += 1  # an iteration meets those of the one before

    def close_loop(self) -> None:
        self.loops.pop()
        self.depth -= 1
        self.headers.pop()

    def whole(self) -> list[str]:
        """Return all lines in order."""
        found: list[str] = []
        for part in (*self.parts, self.lines):
            if isinstance(part, dict):
                found += [f"  {name} = {text}" for text, name in part.items()]
            else:
                found += part
        return found

    def number(self) -> int:
        """Return a new number, which makes a name unique in the text."""
        self.count += 1
        return self.count - 1

    def slot(self, kind: str, stem: str = "slot", align: int = 0) -> str:
        """Declare memory of the function for one value; LLVM makes a register of it."""
        name = f"%{stem}.{self.number()}"
        self.frame.append(f"  {name} = alloca {kind}" + (f", align {align}" if align else ""))
        return name

    def load(self, kind: str, place: str) -> str:
        return self.let(f"load {kind}, ptr {place}")

    def store(self, kind: str, value: str, place: str) -> None:
        self.lines.append(f"  store {kind} {value}, ptr {place}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.left, self.least = False, self.depth

    def jump(self, name: str) -> None:
        """Jump, unless the block has ended with a jump already."""
        if not self.left:
            self.line(f"br label %{name}{_ROLLED if name in self.headers else ''}")
        self.left = True

    def branch(self, condition: str, name: str, other: str, likely: bool = False) -> None:
        """Go on at `name` if the condition holds, else at the other label."""
        more = _LIKELY if likely else ""
        if name in self.headers or other in self.headers:
            more += _ROLLED
        self.line(f"br i1 {condition}, label %{name}, label %{other}{more}")
        self.left = True

    def call(
        self, callee: str, result: str, kinds: Sequence[str], operands: Sequence[str],
        least: int | None = None,
    ) -> str:  # fmt: skip
        """Call a function that is declared at the top; return its result. `least`: as of `let`."""
        is_arithmetic = callee.startswith("@llvm.") and not callee.startswith("@llvm.masked.")
        return self.let(self._called(callee, result, kinds, operands), least, is_arithmetic)

    def run(self, callee: str, kinds: Sequence[str], operands: Sequence[str]) -> None:
        """Call a function without a result."""
        self.line(self._called(callee, "void", kinds, operands))

    def _called(
        self, callee: str, result: str, kinds: Sequence[str], operands: Sequence[str]
    ) -> str:
        self.declarations[f"declare {result} {callee}({', '.join(kinds)})"] = None
        given = ", ".join([f"{kind} {value}" for kind, value in zip(kinds, operands, strict=True)])
        return f"call {result} {callee}({given})"

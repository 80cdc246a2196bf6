"""Write lines of LLVM IR, and take back what was known of values when a block ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
LIKELY = '!{!"branch_weights", i32 2000, i32 1}'


class Scoped(dict[K, V], Generic[K, V]):
    """A dictionary whose changes since a mark can be taken back."""

    def __init__(self) -> None:
        super().__init__()
        self._log: list[tuple[K, V | None]] = []

    def put(self, key: K, value: V) -> None:
        self._log.append((key, self.get(key)))
        self[key] = value

    def drop(self, key: K) -> None:
        if key in self:
            self._log.append((key, self.pop(key)))

    def mark(self) -> int:
        return len(self._log)

    def back(self, mark: int) -> None:
        """Take back all changes since a mark."""
        log = self._log
        if len(log) == mark:
            return
        changes = reversed(log[mark:])
        del log[mark:]
        for key, value in changes:
            if value is None:
                self.pop(key, None)
            else:
                self[key] = value


class Text:
    """The lines of a function, its frame, and what stands around it."""

    def __init__(self) -> None:
        self.count = 0
        self.lines: list[str] = []
        self.frame: list[str] = []  # the allocas of the entry block
        self.declarations: dict[str, None] = {}
        self.helpers: dict[str, str] = {}  # name -> definition
        self.metadata: list[str] = []
        self.left = False  # True behind a jump, where LLVM allows no instruction

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str) -> str:
        """Write an instruction and return the name of its result."""
        name = f"%v.{self.count}"
        self.count += 1
        self.lines.append(f"  {name} = {text}")
        return name

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
        self.line(f"store {kind} {value}, ptr {place}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.left = False

    def jump(self, name: str) -> None:
        """Jump, unless the block has ended with a jump already."""
        if not self.left:
            self.line(f"br label %{name}")
        self.left = True

    def branch(self, condition: str, name: str, other: str, likely: bool = False) -> None:
        """Go on at `name` if the condition holds, else at the other label."""
        weights = f", !prof {self.fact(LIKELY)}" if likely else ""
        self.line(f"br i1 {condition}, label %{name}, label %{other}{weights}")
        self.left = True

    def fact(self, text: str) -> str:
        """Return the name of a metadata node, which all that say the same share."""
        if text not in self.metadata:
            self.metadata.append(text)
        return f"!{self.metadata.index(text)}"

    def call(self, callee: str, result: str, kinds: Sequence[str], operands: Sequence[str]) -> str:
        """Call a function that is declared at the top; return its result."""
        self.declarations[f"declare {result} {callee}({', '.join(kinds)})"] = None
        given = ", ".join([f"{kind} {value}" for kind, value in zip(kinds, operands, strict=True)])
        return self.let(f"call {result} {callee}({given})")

    def run(self, callee: str, kinds: Sequence[str], operands: Sequence[str]) -> None:
        """Call a function without a result."""
        self.declarations[f"declare void {callee}({', '.join(kinds)})"] = None
        given = ", ".join([f"{kind} {value}" for kind, value in zip(kinds, operands, strict=True)])
        self.line(f"call void {callee}({given})")

"""The text of a value, and the facts that an expression around it needs."""

from __future__ import annotations

from typing import NamedTuple


class Expression(NamedTuple):
    """The text of a value, and how it may be used inside another expression."""

    text: str
    atom: bool = False  # needs no parentheses as an operand
    reads: frozenset[int] = frozenset()  # ids of the variables it reads, and MEMORY if it loads
    modular: str = ""  # the value before its cast back from unsigned, for another + - * around it
    wide: str = ""  # the value computed in int64, for an index

    @property
    def operand(self) -> str:
        return self.text if self.atom else f"({self.text})"

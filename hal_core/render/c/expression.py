"""The text of a value, with what another expression around it must know."""

from __future__ import annotations

from typing import NamedTuple


class Expression(NamedTuple):
    """The text of a value."""

    text: str
    atom: bool = False  # needs no parentheses as an operand
    reads: frozenset[int] = frozenset()  # ids of variables, or MEMORY
    modular: str = ""  # the same before the cast back from unsigned, for a further + - *
    wide: str = ""  # the same in int64, as an index

    @property
    def operand(self) -> str:
        return self.text if self.atom else f"({self.text})"

"""The programs of a text that holds several kernels."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hal_core.concurrency import OfThisProcess
from hal_core.errors import InvalidArgument

if TYPE_CHECKING:
    from hal_core.program import Program


class NoSuchKernel(InvalidArgument, KeyError):
    __str__ = InvalidArgument.__str__


class Programs(OfThisProcess, Mapping[str, "Program"]):
    """The programs of one text by their names, which share its machine code.

    Owns: the programs, each of which keeps the driver's module.
    """

    __slots__ = ("_programs",)
    _instead = "Send the source and compile it there, or send each program.binary for device.load."

    def __init__(self, programs: list[Program]) -> None:
        self._programs = {program.name: program for program in programs}

    def __getitem__(self, name: str) -> Program:
        """Return the program of a kernel. Raises: InvalidArgument, which is also a KeyError."""
        try:
            return self._programs[name]
        except (KeyError, TypeError):
            near = difflib.get_close_matches(str(name), self._programs, 1)
            fix = f"Did you mean {near[0]!r}? " if near else ""
            fix += f"The text has {', '.join(self._programs)}."
            raise NoSuchKernel("programs[...]", "no such kernel", got=name, fix=fix) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._programs)

    def __len__(self) -> int:
        return len(self._programs)

    def __repr__(self) -> str:
        return f"<Programs {', '.join(self._programs)}>"

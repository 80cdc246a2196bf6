"""The programs of a text that holds several kernels."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from hal_core.concurrency import OfThisProcess
from hal_core.errors import InvalidArgument

if TYPE_CHECKING:
    from hal_core.program import Program


class NoSuchKernel(InvalidArgument, KeyError):
    __str__ = InvalidArgument.__str__


class Programs(OfThisProcess, dict[str, "Program"]):
    """The programs of one text by their names, which share its machine code.

    Owns: the programs, each of which keeps the driver's module.
    """

    __slots__ = ()
    _instead = "Send the source and compile it there, or send each program.binary for device.load."

    def __init__(self, programs: list[Program]) -> None:
        super().__init__({program.name: program for program in programs})

    def __missing__(self, name: str) -> Program:
        """Raise InvalidArgument, which is also a KeyError, for a kernel that the text lacks."""
        near = difflib.get_close_matches(str(name), self, 1)
        fix = f"Did you mean {near[0]!r}? " if near else ""
        fix += f"The text has {', '.join(self)}."
        raise NoSuchKernel("programs[...]", "no such kernel", got=name, fix=fix)

    def __repr__(self) -> str:
        return f"<Programs {', '.join(self)}>"

"""Load an object as callable code. Two loaders, which `HAL_CPU_LOADER` tells apart:

elf        our own, in `mapped.py`: 0.3 ms, and no LLVM in the process; ELF on Linux
llvmlite   LLVM's engine, in `engine.py`: ELF on Windows and Linux, Mach-O on macOS
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from hal_core.errors import CompileError
from hal_cpu.loader.mapped import load as load

FORMATS = ("elf", "macho")  # of objects


class Code(Protocol):
    """Machine code in memory, as long as this object lives; whoever runs it holds the object."""

    entry: int  # address of the function to launch

    def address_of(self, name: str) -> int:
        """Return the address of another function; 0 for one that the object lacks."""


class Function(NamedTuple):
    """A function of code that has other entries, too."""

    entry: int
    code: Code


def function_of(code: Code, *entries: str) -> Code | Function:
    """Return the first of `entries` that the code defines. Raises: CompileError."""
    found = next(filter(None, map(code.address_of, entries)), 0)
    if not found:
        name = entries[-1]
        raise CompileError(f"load {name}", f"has no entry {name!r}", device="CPU")
    return code if found == code.entry else Function(found, code)


def named(name: str) -> Callable[..., Code]:
    """Return `load(image, name, *entries)` of the loader that HAL_CPU_LOADER calls so."""
    if name == "elf":
        return load
    from hal_cpu.loader import engine

    return engine.load

"""Load an object as callable code. Two loaders, which `HAL_CPU_LOADER` tells apart:

elf        our own, in `mapped.py`: 0.3 ms, and no LLVM in the process; ELF on Linux
llvmlite   LLVM's engine, in `engine.py`: ELF on Windows and Linux, Mach-O on macOS
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hal_cpu.loader.mapped import load as load

FORMATS = ("elf", "macho")  # of objects


class Code(Protocol):
    """Machine code in memory, as long as this object lives; whoever runs it holds the object."""

    entry: int  # address of the function to launch


def named(name: str) -> Callable[..., Code]:
    """Return `load(image, name, *entries)` of the loader that HAL_CPU_LOADER calls so."""
    if name == "elf":
        return load
    from hal_cpu.loader import engine

    return engine.load

"""Compile text to a binary."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hal_core.compiler import Compiler, CompilerPair
from hal_core.errors import CompileError
from hal_core.source import Source, refuse_flags
from hal_testing.fake.chip_kernels import END

if TYPE_CHECKING:
    from hal_core.device.base import Compiled


def pairs(device: Compiled) -> list[CompilerPair]:
    """Return the compiler pairs, best first. A compiler is made when its pair is selected."""
    make = partial(FakeCompiler, device)
    return [CompilerPair("text", FakeCompiler.language, None, make)]  # None: no renderer


class FakeCompiler(Compiler):
    """A compiler to the chip's binaries: the signature, a checked text and an end mark."""

    language, format, target = "python", "python", "python"
    identity = "fake 1"  # vendor, version, architecture and options: part of the cache key

    def __init__(self, device: Compiled) -> None:
        self.device = device

    def _compile(self, source: Source) -> bytes:
        refuse_flags(source, "Python", self.device.name)
        try:
            compile(source.text, source.name, "exec")
        except SyntaxError as error:
            raise CompileError(
                f"compile {source.name}",
                "not valid Python",
                log=str(error),
                source=source.text,
                line=error.lineno,
                device=self.device.name,
            ) from None
        return f"{source.signature}\n{source.text}".encode() + END

    def _disassemble(self, image: bytes) -> str:
        return image.removesuffix(END).decode()

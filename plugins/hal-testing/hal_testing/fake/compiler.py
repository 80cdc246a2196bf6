"""Compile text to a binary."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from hal_core.compiler import Compiler, CompilerPair
from hal_core.errors import CompileError
from hal_core.source import Source, refuse_flags
from hal_kernel.errors import InvalidKernel
from hal_kernel.ir.listing import parse_listing
from hal_kernel.ir.verify import verify
from hal_kernel.render.uops import UOpsRenderer
from hal_testing.fake.chip_kernels import END

if TYPE_CHECKING:
    from hal_core.device.base import Compiled


def pairs(device: Compiled) -> list[CompilerPair]:
    """Return the compiler pairs, best first. A compiler is made when its pair is selected."""
    make = partial(FakeCompiler, device)
    return [CompilerPair("listing", FakeCompiler.language, UOpsRenderer, make)]


class FakeCompiler(Compiler):
    """A compiler to the chip's binaries: a checked listing of the IR and an end mark."""

    language, format, target = "uops", "uops", "uops"
    identity = "fake 1"  # vendor, version, architecture and options: part of the cache key

    def __init__(self, device: Compiled) -> None:
        self.device = device

    def _compile(self, source: Source) -> bytes:
        refuse_flags(source, "a listing", self.device.name)
        try:
            kernel = parse_listing(source.text)
            verify(kernel)
        except InvalidKernel as error:
            log = str(error)
            place = re.search(r"line (\d+)", log)
            raise CompileError(
                f"compile {source.name}",
                "not a valid listing",
                log=log,
                source=source.text,
                line=int(place[1]) if place else None,
                device=self.device.name,
            ) from None
        return source.text.encode() + END

    def _disassemble(self, image: bytes) -> str:
        return image.removesuffix(END).decode()

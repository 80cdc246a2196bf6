"""The compiler of interpreted kernels, whose binary is the kernel's listing."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from hal_core.compiler import Compiler, CompilerPair
from hal_core.compiler.seal import seal, unseal
from hal_core.errors import CompileError, HalError
from hal_core.source import Source, refuse_flags
from hal_kernel.ir.listing import parse_listing
from hal_kernel.ir.verify import verify
from hal_kernel.render.uops import UOpsRenderer

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.signature import Signature
    from hal_kernel.ir import Kernel

MAKER = "hal-core-uops 1"  # the format of binaries and its version


def pairs(device: Compiled) -> list[CompilerPair]:
    """Return the only compiler pair."""
    return [CompilerPair("uops", "uops", UOpsRenderer, partial(ListingCompiler, device.name))]


class ListingCompiler(Compiler):
    """A compiler whose binary is the kernel's listing, after a checksum that shows damage."""

    language = format = "uops"
    target = "interpreter"
    identity = MAKER

    def __init__(self, device: str) -> None:
        self.device = device  # for errors

    def _compile(self, source: Source) -> bytes:
        operation = f"compile {source.name}"
        refuse_flags(source, "a listing", self.device)
        parse(source.text, source.name, source.signature, operation, self.device)
        return seal(MAKER, None, source.text.encode())

    def _disassemble(self, image: bytes) -> str:
        return unseal(MAKER, image, "disassemble", self.device)[1].decode()


def parse(text: str, entry: str, signature: Signature, operation: str, device: str) -> Kernel:
    """Parse a listing. Raises: CompileError with the faulty line, or for another kernel."""
    try:
        kernel = parse_listing(text)
        verify(kernel)
    except HalError as error:
        line = re.match(r"line (\d+) ", error.problem)
        problem, place = "not a valid listing", int(line[1]) if line else None
        raise CompileError(
            operation, problem, log=str(error), source=text, line=place, device=device
        ) from None
    if kernel.name != entry or kernel.signature != signature:
        problem = f"the listing belongs to another kernel, {kernel.name}({kernel.signature})"
        raise CompileError(operation, problem, source=text, device=device)
    return kernel

"""From text to a binary."""

from __future__ import annotations

from hal_core.compiler import CompileOptions, Compiler, CompilerPair
from hal_core.errors import CompileError, InvalidKernel
from hal_core.ir.listing import parse_listing
from hal_core.ir.verify import verify
from hal_core.render import UOpsRenderer
from hal_core.testing.fake.chip import END


def pairs() -> list[CompilerPair]:
    """The ways to compile, best first; nothing of them is made yet."""
    return [CompilerPair("listing", FakeCompiler.language, UOpsRenderer, FakeCompiler)]


class FakeCompiler(Compiler):
    """The chip takes listings of the IR, so a binary is a text that was checked, and its end."""

    language, format, target = "uops", "uops", "uops"
    identity = "fake 1"  # vendor, version, architecture and options: part of the cache key

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        try:
            kernel = parse_listing(source)
            verify(kernel)
        except InvalidKernel as error:
            raise CompileError(
                f"compile {options.entry}", "not a valid listing", log=str(error), source=source
            ) from None
        return source.encode() + END

    def _disassemble(self, image: bytes) -> str:
        return image.removesuffix(END).decode()

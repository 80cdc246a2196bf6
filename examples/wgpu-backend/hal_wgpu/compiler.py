"""WebGPU has no binaries: a text that was checked takes the place of one."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from hal_core.compiler import Compiler, CompilerPair
from hal_core.errors import CompileError, Unsupported
from hal_core.source import Source
from hal_wgpu import driver
from hal_wgpu.wgsl import WGSLRenderer

if TYPE_CHECKING:
    from hal_wgpu.device import WGPUDevice

# In front of every text, and on its first line, so that line numbers stay: a launch says the block.
PRELUDE = "override block_x = 1u; override block_y = 1u; override block_z = 1u; "
END = b"// end\n"  # of every image, so that half a one is none


def pairs(device: WGPUDevice) -> list[CompilerPair]:
    """The ways to compile, best first; nothing of them is made yet."""
    return [CompilerPair("naga", "wgsl", WGSLRenderer, partial(WGSLCompiler, device))]


class WGSLCompiler(Compiler):
    """Checked by naga, the compiler inside wgpu; machine code is made when a kernel is loaded."""

    language, format, target = "wgsl", "wgsl", "webgpu"

    def __init__(self, device: WGPUDevice) -> None:
        self.device = device
        self.identity = device.identity

    def _compile(self, source: Source) -> bytes:
        operation = f"compile {source.name}"
        if source.options or source.defines or source.includes:
            raise Unsupported(
                operation,
                "WGSL has no preprocessor, and naga no options",
                got=(source.options, source.defines, source.includes),
                device=self.device.name,
                fix="Write constants into the text.",
            )
        try:
            self.device.gpu.create_shader_module(code=PRELUDE + source.text)
        except driver.library().GPUValidationError as error:
            place = re.search(r"wgsl:(\d+):", str(error))
            raise CompileError(
                operation,
                "naga refuses the text",
                log=str(error),
                source=source.text,
                line=int(place[1]) if place else None,
                device=self.device.name,
            ) from None
        return source.text.encode() + b"\n" + END

    def _disassemble(self, image: bytes) -> str:
        return image.removesuffix(END).decode()

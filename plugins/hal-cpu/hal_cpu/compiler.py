"""The compilers of the CPU, in the order in which they are tried."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hal_core import render
from hal_core.compiler import CompilerPair
from hal_cpu import processor
from hal_cpu.compilers.c import C_COMPILERS, CCompilerProgram
from hal_cpu.compilers.llvm import LLVMCompiler

if TYPE_CHECKING:
    from hal_core.compiler import Compiler
    from hal_cpu.device import CPUDevice


def pairs(device: CPUDevice) -> list[CompilerPair]:
    """List the device's compilers, best first: `CPU_CC=llvm`, `clang`, `gcc` or `zig` chooses one.

    A checked device interprets kernels, unless another is chosen.
    """
    return [CHECKED, *PAIRS] if device.checked else PAIRS


def llvm_renderer() -> render.Renderer:
    from hal_core.ir.blocks.groups import Registers

    return render.LLVMRenderer(
        half=processor.has_half(),
        fma=processor.has_fma(),
        both=True,
        registers=Registers(*processor.vector_registers()),
    )


def checked_compiler() -> Compiler:
    from hal_cpu.checked.interpreted import UOpsCompiler

    return UOpsCompiler("CPU")


# LLVM first: it is always there. Then the C compilers, for users who ask for one by name and for
# `Source` kernels in C. `render` imports a renderer when its name is read, which is at first use.
PAIRS = [
    CompilerPair("llvm", "llvm", llvm_renderer, LLVMCompiler),
    *(
        CompilerPair(name, "c", lambda: render.CRenderer(), partial(CCompilerProgram, row))
        for name, row in C_COMPILERS.items()
    ),
]
CHECKED = CompilerPair("checked", "uops", lambda: render.UOpsRenderer(), checked_compiler)

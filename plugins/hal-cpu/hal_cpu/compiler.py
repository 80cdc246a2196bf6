"""The compilers of the CPU, in the order in which they are tried."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hal_core.compiler import CompilerPair
from hal_core.concurrency import Late
from hal_cpu import processor
from hal_cpu.compilers.c import C_COMPILERS, CCompilerProgram
from hal_cpu.compilers.llvm import LLVMCompiler

if TYPE_CHECKING:
    from hal_core.compiler import Compiler
    from hal_cpu.device import CPUDevice
    from hal_kernel.render import Renderer


# Renderers are imported at first use: a device whose kernels are text alone needs none.
c99, uops = Late("hal_kernel.render.c.c99"), Late("hal_kernel.render.uops")


def pairs(device: CPUDevice) -> list[CompilerPair]:
    """List the device's compilers, best first: `CPU_CC=llvm`, `clang`, `gcc` or `zig` chooses one.

    A checked device interprets kernels, unless another is chosen.
    """
    return [CHECKED, *PAIRS] if device.checked else PAIRS


def llvm_renderer() -> Renderer:
    from hal_cpu.vectors import LLVMRenderer
    from hal_cpu.vectors.width import Registers

    registers = Registers(*processor.vector_registers())
    return LLVMRenderer(processor.has_half(), processor.has_fma(), registers)


def checked_compiler() -> Compiler:
    from hal_cpu.checked.interpreted import UOpsCompiler

    return UOpsCompiler("CPU")


# LLVM first: it is always there. Then the C compilers, for users who ask for one by name and for
# `Source` kernels in C.
PAIRS = [
    CompilerPair("llvm", "llvm", llvm_renderer, LLVMCompiler),
    *(
        CompilerPair(name, "c", lambda: c99.CRenderer(), partial(CCompilerProgram, row))
        for name, row in C_COMPILERS.items()
    ),
]
CHECKED = CompilerPair("checked", "uops", lambda: uops.UOpsRenderer(), checked_compiler)

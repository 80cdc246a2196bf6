"""The compilers of the CPU, in the order in which they are taken."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hal_core.compiler import Compiler, CompilerPair
from hal_cpu import processor
from hal_cpu.compilers.c import C_COMPILERS, CCompilerProgram
from hal_cpu.compilers.llvm import LLVMCompiler

if TYPE_CHECKING:
    from hal_core.render import Renderer


def _llvm_renderer() -> Renderer:
    from hal_core.render import LLVMRenderer

    return LLVMRenderer(half=processor.has_half(), fma=processor.has_fma())


def _c_renderer() -> Renderer:
    from hal_core.render import CRenderer

    return CRenderer()


def _checked_renderer() -> Renderer:
    from hal_core.render import UOpsRenderer

    return UOpsRenderer()


def _checked_compiler() -> Compiler:
    from hal_cpu.checked.interpreted import UOpsCompiler

    return UOpsCompiler()


CHECKED = CompilerPair("checked", "uops", _checked_renderer, _checked_compiler)


def pairs(checked: bool = False) -> list[CompilerPair]:
    """LLVM first: it is always there. Then the C compilers, for those who ask for one by name
    and for `Source` kernels in C. Of a checked device the interpreter comes before all of them."""
    return [
        *([CHECKED] if checked else []),
        CompilerPair("llvm", "llvm", _llvm_renderer, LLVMCompiler),
        *(
            CompilerPair(name, "c", _c_renderer, partial(CCompilerProgram, row))
            for name, row in C_COMPILERS.items()
        ),
    ]

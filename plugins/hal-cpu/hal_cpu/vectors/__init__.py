"""Render LLVM IR for the CPU with vectors of its own: a few threads along x are the lanes.

What they are written from: `tree.py` nests nodes, `shapes.py` finds what varies, `coarse.py`
rewrites threads of several elements, `bundles.py` finds accesses between each other, `rows.py`
threads with work, `width.py` chooses how many threads a gang has.

The writers, each of which is a class that stands on the one before: `text.py`, `arithmetic.py`,
`functions.py`, `lanes.py`, `guesses.py`, `memory.py`, `loads.py`, `stores.py`, `atomics.py`,
`variables.py`, `subgroups.py`, `branches.py`, `loops.py`, `flat.py`, `gangs.py`. Names with a dot
are the renderer's.
"""

from __future__ import annotations

from hal_core.dtypes import DTYPES
from hal_cpu.vectors.gangs import Gangs
from hal_cpu.vectors.width import WIDE, Registers, subgroup_of
from hal_kernel.ir import Kernel
from hal_kernel.ir.blocks.fission import at_barriers
from hal_kernel.ir.contraction import contracted
from hal_kernel.render.renderer import Renderer


class LLVMRenderer(Renderer):
    """Render LLVM IR with one exported function; everything else is internal.

    `half`: True if the processor converts float16 itself. `fma`: True if it has fused
    multiply-add, of which the formulas of math functions consist. `registers`: the processor's.
    `width`: threads of a gang, and of a subgroup; None to choose.
    """

    name, language, has_lanes = "LLVM IR", "llvm", True
    dtypes = frozenset(DTYPES.values())

    def __init__(
        self, half: bool = False, fma: bool = True, registers: Registers = WIDE,
        width: int | None = None,
    ) -> None:  # fmt: skip
        self.half, self.fma, self.registers, self.width = half, fma, registers, width
        self.subgroup = width or subgroup_of(registers)

    def _render(self, kernel: Kernel) -> str:
        return self.gangs(kernel).text()

    def gangs(self, kernel: Kernel) -> Gangs:
        """Return the gangs of a kernel that `render` checked and folded."""
        kernel = contracted(kernel) if self.fma and kernel.contract else kernel
        kernel = kernel._replace(uops=at_barriers(kernel))
        return Gangs(kernel, self.half, self.fma, self.registers, self.width)

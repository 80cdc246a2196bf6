"""Render the kernel IR as its own listing, for devices that interpret it and for readers."""

from __future__ import annotations

from hal_core.dtypes import DTYPES
from hal_kernel.ir import Kernel
from hal_kernel.ir.listing import listing
from hal_kernel.ir.verify import verify
from hal_kernel.render.renderer import Renderer


class UOpsRenderer(Renderer):
    """Write one line per node. Nothing is folded, so that the interpreter sees every assert."""

    name, language, serves_source = "IR", "uops", True
    dtypes = frozenset(DTYPES.values())

    def render(self, kernel: Kernel) -> str:
        verify(kernel)
        self._check(kernel)
        return listing(kernel)

"""The kernel IR itself as a language: for devices that interpret it, and to look at."""

from __future__ import annotations

from hal_core.dtypes import DTYPES
from hal_core.ir import Kernel
from hal_core.ir.listing import listing
from hal_core.ir.verify import verify
from hal_core.render.renderer import Renderer


class UOpsRenderer(Renderer):
    """One line a node; nothing is folded and asserts stay, for whoever carries it out."""

    name, language = "IR", "uops"
    dtypes = frozenset(DTYPES.values())

    def render(self, kernel: Kernel) -> str:
        verify(kernel)
        self._check(kernel)
        return listing(kernel)

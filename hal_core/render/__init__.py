"""Renderers: kernel IR in, the text of one language out. No vendor package is needed for any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hal_core.render.renderer import Renderer

if TYPE_CHECKING:
    from hal_core.render.cfamily import CRenderer, OpenCLRenderer
    from hal_core.render.llvm import LLVMRenderer

    RENDERERS: dict[str, type[Renderer]]

__all__ = ["RENDERERS", "CRenderer", "LLVMRenderer", "OpenCLRenderer", "Renderer"]


def __getattr__(name: str) -> object:
    # A process that renders LLVM IR does not load the C family, and the other way round.
    if name == "LLVMRenderer":
        from hal_core.render.llvm import LLVMRenderer

        return LLVMRenderer
    if name in ("CRenderer", "OpenCLRenderer"):
        from hal_core.render import cfamily

        return getattr(cfamily, name)
    if name == "RENDERERS":
        from hal_core.render.cfamily import CRenderer, OpenCLRenderer
        from hal_core.render.llvm import LLVMRenderer

        return {kind.language: kind for kind in (CRenderer, OpenCLRenderer, LLVMRenderer)}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

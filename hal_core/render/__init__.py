"""Renderers, which write kernel IR as text of one language. None needs a vendor's package."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hal_core.render.renderer import Renderer

if TYPE_CHECKING:
    from hal_core.render.c.c99 import CRenderer
    from hal_core.render.c.cuda import CUDARenderer
    from hal_core.render.c.hip import HIPRenderer
    from hal_core.render.c.metal import MetalRenderer
    from hal_core.render.c.opencl import OpenCLRenderer
    from hal_core.render.llvm import LLVMRenderer
    from hal_core.render.ptx import PTXRenderer
    from hal_core.render.uops import UOpsRenderer

    RENDERERS: dict[str, type[Renderer]]

# renderer -> its module, imported at first use, because a process uses few of them.
_MODULES = {
    "CRenderer": "c.c99",
    "CUDARenderer": "c.cuda",
    "HIPRenderer": "c.hip",
    "MetalRenderer": "c.metal",
    "OpenCLRenderer": "c.opencl",
    "LLVMRenderer": "llvm",
    "PTXRenderer": "ptx",
    "UOpsRenderer": "uops",
}

__all__ = [
    "RENDERERS", "CRenderer", "CUDARenderer", "HIPRenderer", "LLVMRenderer", "MetalRenderer",
    "OpenCLRenderer", "PTXRenderer", "Renderer", "UOpsRenderer",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"hal_core.render.{_MODULES[name]}"), name)
    if name == "RENDERERS":
        kinds = (__getattr__(kind) for kind in _MODULES)
        return {kind.language: kind for kind in kinds}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

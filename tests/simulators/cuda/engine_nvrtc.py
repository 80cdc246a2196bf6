"""NVRTC to PTX."""

from __future__ import annotations

import sys
from pathlib import Path

from hal_kernel.ir import Kernel

sys.path.insert(0, str(Path(__file__).parents[2] / "render"))

from offline import NVRTC


class NVRTCText(NVRTC):
    """Its warnings are the business of other tests."""

    image, architecture = "PTX", "compute_80"

    def compile(self, kernel: Kernel) -> bytes:
        return self.text(self.renderer.render(kernel), *self.renderer.options(kernel)).encode()

    def text(self, source: str, *options: str) -> str:
        flags = [f"--gpu-architecture={self.architecture}", "-w", *options]
        return self.library.compile(source, flags).rstrip(b"\0").decode()

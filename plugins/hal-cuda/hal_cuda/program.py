"""A loaded kernel."""

from __future__ import annotations

from hal_core.streams.program import StreamProgram
from hal_cuda.compiler import MAKER
from hal_cuda.device import CUDADevice


class CUDAProgram(StreamProgram):
    """A kernel on a CUDA device."""

    format, maker = "cuda", MAKER
    device: CUDADevice

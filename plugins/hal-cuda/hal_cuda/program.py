"""A loaded kernel."""

from __future__ import annotations

from hal_cuda.compiler import MAKER
from hal_cuda.device import CUDADevice
from hal_streams.program import StreamProgram


class CUDAProgram(StreamProgram):
    """A kernel on a CUDA device."""

    formats, maker = ("cuda",), MAKER
    device: CUDADevice

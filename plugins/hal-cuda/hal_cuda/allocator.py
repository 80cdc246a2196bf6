"""Memory of an NVIDIA GPU, as other libraries know it."""

from __future__ import annotations

from types import MappingProxyType

from hal_core.streams.allocator import StreamAllocator
from hal_core.streams.interchange import array_interface
from hal_cuda.device import CUDADevice

_KDL_CUDA, _KDL_CUDA_HOST, _LEGACY_STREAM = 2, 3, 1  # DLPack's numbers


class CUDAAllocator(StreamAllocator):
    """Memory of one NVIDIA GPU. An opaque is a device address."""

    exports = MappingProxyType({"__cuda_array_interface__": array_interface})
    dlpack_pinned = _KDL_CUDA_HOST, 0  # DLPack counts all pinned memory as device 0's
    dlpack_stream = _LEGACY_STREAM
    another_context_fix = (
        "Share one context: import pycuda.autoprimaryctx, or set HAL_CUDA_DRIVER=pycuda "
        "and open the device while PyCUDA's context is current."
    )

    def __init__(self, device: CUDADevice) -> None:
        super().__init__(device)
        self.dlpack_device = _KDL_CUDA, device.index

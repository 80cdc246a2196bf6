"""Memory of an NVIDIA GPU, as other libraries know it."""

from __future__ import annotations

from types import MappingProxyType

from hal_streams.allocator import StreamAllocator
from hal_streams.interchange import array_interface


class CUDAAllocator(StreamAllocator):
    """Memory of one NVIDIA GPU."""

    exports = MappingProxyType({"__cuda_array_interface__": array_interface})
    dlpack_types = 2, 3  # kDLCUDA, kDLCUDAHost
    dlpack_stream = 1  # the legacy default stream
    another_context_fix = (
        "Share one context: import pycuda.autoprimaryctx, or set HAL_CUDA_DRIVER=pycuda "
        "and open the device while PyCUDA's context is current."
    )

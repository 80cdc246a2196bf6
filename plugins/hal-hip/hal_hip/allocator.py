"""Memory of an AMD GPU, as other libraries know it."""

from __future__ import annotations

from types import MappingProxyType

from hal_streams.allocator import StreamAllocator
from hal_streams.interchange import array_interface


class HIPAllocator(StreamAllocator):
    """Memory of one AMD GPU."""

    exports = MappingProxyType({"__cuda_array_interface__": array_interface})  # PyTorch's too
    dlpack_types = 10, 11  # kDLROCM, kDLROCMHost
    dlpack_stream = 0  # the legacy default stream

"""Memory of an AMD GPU, as other libraries know it."""

from __future__ import annotations

from types import MappingProxyType

from hal_core.streams.allocator import StreamAllocator
from hal_core.streams.interchange import array_interface
from hal_hip.device import HIPDevice

_KDL_ROCM, _KDL_ROCM_HOST, _LEGACY_STREAM = 10, 11, 0  # DLPack's numbers


class HIPAllocator(StreamAllocator):
    """Memory of one AMD GPU. An opaque is a device address."""

    exports = MappingProxyType({"__cuda_array_interface__": array_interface})  # PyTorch's too
    dlpack_pinned = _KDL_ROCM_HOST, 0
    dlpack_stream = _LEGACY_STREAM

    def __init__(self, device: HIPDevice) -> None:
        super().__init__(device)
        self.dlpack_device = _KDL_ROCM, device.index

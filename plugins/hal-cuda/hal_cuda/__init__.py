"""The plugin of the family CUDA. Importing it loads neither a binding nor a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hal_core.compiler import CompilerPair
    from hal_core.device.base import DeviceInfo
    from hal_core.hookspecs import Check, Foreign
    from hal_core.source import Binary
    from hal_cuda.allocator import CUDAAllocator
    from hal_cuda.device import CUDADevice
    from hal_cuda.program import CUDAProgram

__version__ = "0.1.0"


class CUDAPlugin:
    """Every NVIDIA GPU that the driver shows to this process."""

    hal_api = (1, 0)
    rank = {"gpu": 400}  # noqa: RUF012  # read-only by contract

    @hookimpl
    def hal_enumerate(self, family: str) -> Sequence[DeviceInfo]:
        from hal_cuda.device import enumerate_devices

        return enumerate_devices(family)

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> CUDADevice:
        from hal_cuda.device import CUDADevice

        return CUDADevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: CUDADevice) -> CUDAAllocator:
        from hal_cuda.allocator import CUDAAllocator

        return CUDAAllocator(device)

    @hookimpl
    def hal_import_buffer(self, device: CUDADevice, obj: object) -> Foreign | None:
        from hal_cuda.interchange import foreign

        return foreign(device, obj)

    @hookimpl
    def hal_make_compilers(self, device: CUDADevice) -> Sequence[CompilerPair]:
        from hal_cuda.compiler import pairs

        return pairs(device)

    @hookimpl
    def hal_make_program(self, device: CUDADevice, binary: Binary) -> CUDAProgram:
        from hal_cuda.program import CUDAProgram

        return CUDAProgram(device, binary)

    @hookimpl
    def hal_doctor(self, family: str) -> Sequence[Check]:
        from hal_cuda.doctor import checks

        return checks(family)


plugin = CUDAPlugin()


def __getattr__(name: str) -> Any:
    if name == "CUDADevice":
        from hal_cuda.device import CUDADevice

        return CUDADevice
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

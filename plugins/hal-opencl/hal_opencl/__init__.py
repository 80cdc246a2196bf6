"""The plugin of the family OPENCL. Importing it loads neither PyOpenCL nor a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hal_core.compiler import CompilerPair
    from hal_core.device.base import DeviceInfo
    from hal_core.hookspecs import Check
    from hal_core.source import Binary
    from hal_opencl.allocator import OpenCLAllocator
    from hal_opencl.device import OpenCLDevice
    from hal_opencl.program import OpenCLProgram

__version__ = "0.1.0"


class OpenCLPlugin:
    """Every device of every installed OpenCL platform; a vendor's own GPU backend ranks higher."""

    hal_api = (1, 0)
    rank = {"gpu": 200, "accelerator": 100, "cpu": -1}  # noqa: RUF012  # read-only by contract

    @hookimpl
    def hal_enumerate(self, family: str) -> Sequence[DeviceInfo]:
        from hal_opencl.device import enumerate_devices

        return enumerate_devices(family)

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> OpenCLDevice:
        from hal_opencl.device import OpenCLDevice

        return OpenCLDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: OpenCLDevice) -> OpenCLAllocator:
        from hal_opencl.allocator import OpenCLAllocator

        return OpenCLAllocator(device)

    @hookimpl
    def hal_make_compilers(self, device: OpenCLDevice) -> Sequence[CompilerPair]:
        from hal_opencl.compiler import pairs

        return pairs(device)

    @hookimpl
    def hal_make_program(self, device: OpenCLDevice, binary: Binary) -> OpenCLProgram:
        from hal_opencl.program import OpenCLProgram

        return OpenCLProgram(device, binary)

    @hookimpl
    def hal_doctor(self, family: str) -> Sequence[Check]:
        from hal_opencl.doctor import checks

        return checks(family)


plugin = OpenCLPlugin()


def __getattr__(name: str) -> Any:
    if name == "OpenCLDevice":
        from hal_opencl.device import OpenCLDevice

        return OpenCLDevice
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

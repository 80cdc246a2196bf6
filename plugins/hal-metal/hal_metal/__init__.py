"""The plugin of the family METAL. Importing it loads neither pyobjc nor Metal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hal_core.compiler import CompilerPair
    from hal_core.device.base import DeviceInfo
    from hal_core.hookspecs import Check
    from hal_core.source import Binary
    from hal_metal.allocator import MetalAllocator
    from hal_metal.device import MetalDevice
    from hal_metal.program import MetalProgram

__version__ = "0.1.0"


class MetalPlugin:
    """The GPUs of a Mac."""

    hal_api = (1, 0)

    @hookimpl
    def hal_enumerate(self, family: str) -> Sequence[DeviceInfo]:
        from hal_metal.device import enumerate_devices

        return enumerate_devices(family)

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> MetalDevice:
        from hal_metal.device import MetalDevice

        return MetalDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: MetalDevice) -> MetalAllocator:
        from hal_metal.allocator import MetalAllocator

        return MetalAllocator(device)

    @hookimpl
    def hal_make_compilers(self, device: MetalDevice) -> Sequence[CompilerPair]:
        from hal_metal.compiler import pairs

        return pairs(device)

    @hookimpl
    def hal_make_program(self, device: MetalDevice, binary: Binary) -> MetalProgram:
        from hal_metal.program import MetalProgram

        return MetalProgram(device, binary)

    @hookimpl
    def hal_doctor(self, family: str) -> Sequence[Check]:
        from hal_metal.doctor import checks

        return checks(family)


plugin = MetalPlugin()


def __getattr__(name: str) -> Any:
    if name == "MetalDevice":
        from hal_metal.device import MetalDevice

        return MetalDevice
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

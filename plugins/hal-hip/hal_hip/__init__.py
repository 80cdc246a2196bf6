"""The plugin of the family HIP. Importing it loads no library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hal_core.compiler import CompilerPair
    from hal_core.device.base import DeviceInfo
    from hal_core.hookspecs import Check, Foreign
    from hal_core.source import Binary
    from hal_hip.allocator import HIPAllocator
    from hal_hip.device import HIPDevice
    from hal_hip.program import HIPProgram

__version__ = "0.1.0"


class HIPPlugin:
    """Every AMD GPU that the HIP runtime shows to this process."""

    hal_api = (1, 0)
    rank = {"gpu": 400}  # noqa: RUF012  # read-only by contract

    @hookimpl
    def hal_enumerate(self, family: str) -> Sequence[DeviceInfo]:
        from hal_hip.device import enumerate_devices

        return enumerate_devices(family)

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> HIPDevice:
        from hal_hip.device import HIPDevice

        return HIPDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: HIPDevice) -> HIPAllocator:
        from hal_hip.allocator import HIPAllocator

        return HIPAllocator(device)

    @hookimpl
    def hal_import_buffer(self, device: HIPDevice, obj: object) -> Foreign | None:
        from hal_streams.interchange import foreign

        return foreign(device, obj)

    @hookimpl
    def hal_make_compilers(self, device: HIPDevice) -> Sequence[CompilerPair]:
        from hal_hip.compiler import pairs

        return pairs(device)

    @hookimpl
    def hal_make_program(self, device: HIPDevice, binary: Binary) -> HIPProgram:
        from hal_hip.program import HIPProgram

        return HIPProgram(device, binary)

    @hookimpl
    def hal_doctor(self, family: str) -> Sequence[Check]:
        from hal_hip.doctor import checks

        return checks(family)


plugin = HIPPlugin()


def __getattr__(name: str) -> Any:
    if name == "HIPDevice":
        from hal_hip.device import HIPDevice

        return HIPDevice
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

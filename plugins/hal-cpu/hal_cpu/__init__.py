"""The plugin of the family CPU. Importing it loads no compiler and no device code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hal_core.compiler import CompilerPair
    from hal_core.device.base import DeviceInfo
    from hal_core.hookspecs import Check
    from hal_core.program import Program
    from hal_core.source import Binary
    from hal_cpu.allocator import CPUAllocator
    from hal_cpu.device import CPUDevice

__version__ = "0.1.0"


class CPUPlugin:
    """The processor of this host as one device, the default where there is no better one."""

    hal_api = (1, 0)
    rank = {"cpu": 0}  # noqa: RUF012  # read-only by contract

    @hookimpl
    def hal_enumerate(self, family: str) -> Sequence[DeviceInfo]:
        from hal_cpu.device import enumerate_devices

        return enumerate_devices(family)

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> CPUDevice:
        from hal_cpu.device import open_device

        return open_device(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: CPUDevice) -> CPUAllocator:
        return device.make_allocator()  # under HAL_CHECK=1 a class of its own

    @hookimpl
    def hal_make_compilers(self, device: CPUDevice) -> Sequence[CompilerPair]:
        from hal_cpu.compiler import pairs

        return pairs(device)

    @hookimpl
    def hal_make_program(self, device: CPUDevice, binary: Binary) -> Program:
        return device.make_program(binary)  # under HAL_CHECK=1 likewise

    @hookimpl
    def hal_doctor(self, family: str) -> Sequence[Check]:
        from hal_cpu.doctor import checks

        return checks(family)


plugin = CPUPlugin()


def __getattr__(name: str) -> Any:
    if name == "CPUDevice":
        from hal_cpu.device import CPUDevice

        return CPUDevice
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The CPU as a device of hal-core. Importing this loads no compiler and no device code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.hookspecs import Check, hookimpl

if TYPE_CHECKING:
    from hal_core.compiler import Binary, CompilerPair
    from hal_core.device import DeviceInfo
    from hal_core.program import Program
    from hal_cpu.allocator import CPUAllocator
    from hal_cpu.device import CPUDevice

__version__ = "0.1.0"


class CPUPlugin:
    """Named by the entry point `CPU` of the group `hal.devices`."""

    hal_api = (1, 0)
    rank = {"cpu": 0}  # noqa: RUF012  # what there is when there is nothing better

    @hookimpl
    def hal_enumerate(self, family: str) -> list[DeviceInfo]:
        from hal_cpu.device import describe

        return [describe()]

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> CPUDevice:
        from hal_core import config

        if config.CHECK.read():
            from hal_cpu.checked.device import CheckedDevice

            return CheckedDevice(info.name, info)
        from hal_cpu.device import CPUDevice

        return CPUDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: CPUDevice) -> CPUAllocator:
        if device.checked:
            from hal_cpu.checked.allocator import CheckedAllocator

            return CheckedAllocator(device)
        from hal_cpu.allocator import CPUAllocator

        return CPUAllocator(device)

    @hookimpl
    def hal_make_compilers(self, device: CPUDevice) -> list[CompilerPair]:
        from hal_cpu.compiler import pairs

        return pairs(device.checked)

    @hookimpl
    def hal_make_program(self, device: Any, binary: Binary) -> Program:
        if not device.checked:
            from hal_cpu.program import CPUProgram

            return CPUProgram(device, binary)
        if binary.format == "uops":
            from hal_cpu.checked.interpreted import InterpretedProgram

            return InterpretedProgram(device, binary)
        from hal_cpu.checked.native import NativeProgram

        return NativeProgram(device, binary)

    @hookimpl
    def hal_doctor(self, family: str) -> list[Check]:
        from hal_cpu.doctor import checks

        return checks()


plugin = CPUPlugin()

"""The plugin of the family WGPU. Importing it loads no driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.hookspecs import Check, hookimpl

if TYPE_CHECKING:
    from hal_core.compiler import CompilerPair
    from hal_core.device.base import Compiled, DeviceInfo
    from hal_core.program import Program
    from hal_core.source import Binary
    from hal_wgpu.device import WGPUAllocator, WGPUDevice


class WGPUPlugin:
    hal_api = (1, 0)

    @hookimpl
    def hal_enumerate(self, family: str) -> list[DeviceInfo]:
        from hal_wgpu.device import describe

        return describe(family)

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> WGPUDevice:
        from hal_wgpu.device import WGPUDevice

        return WGPUDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: Compiled) -> WGPUAllocator:
        from hal_wgpu.device import WGPUAllocator

        return WGPUAllocator(device)

    @hookimpl
    def hal_make_compilers(self, device: Any) -> list[CompilerPair]:
        from hal_wgpu.compiler import pairs

        return pairs(device)

    @hookimpl
    def hal_make_program(self, device: Any, binary: Binary) -> Program:
        from hal_wgpu.program import WGPUProgram

        return WGPUProgram(device, binary)

    @hookimpl
    def hal_doctor(self, family: str) -> list[Check]:
        from hal_wgpu import driver

        found = ", ".join(adapter.summary for adapter in driver.adapters())
        fix = "Install a Vulkan driver; Mesa's llvmpipe is one for any CPU."
        return [Check("wgpu", True, driver.version()), Check("adapters", bool(found), found, fix)]


plugin = WGPUPlugin()

"""A complete backend without hardware: authors copy it, and the conformance kit is tested on it.

`hal new NPU2` writes a distribution made of these files. chip.py simulates a vendor's library; the
other files are those of every backend: plugin, driver calls, device, allocator, compiler, program.
Importing the plugin loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.hookspecs import Check, hookimpl

if TYPE_CHECKING:
    from hal_core.compiler import CompilerPair
    from hal_core.device.base import Compiled, DeviceInfo
    from hal_core.program import Program
    from hal_core.source import Binary
    from hal_testing.fake.allocator import FakeAllocator
    from hal_testing.fake.device import FakeDevice


class FakePlugin:
    """The plugin object that the entry point names. Tests pass `facts` in place of device.py's."""

    hal_api = (1, 0)

    def __init__(self, devices: int = 2, **facts: Any) -> None:
        self.devices, self.facts = devices, facts

    @hookimpl
    def hal_enumerate(self, family: str) -> list[DeviceInfo]:
        # Imported here, so that importing the plugin stays cheap and cannot fail.
        from hal_testing.fake.device import enumerate_devices

        return enumerate_devices(family, self.devices, **self.facts)

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> FakeDevice:
        from hal_testing.fake.device import FakeDevice

        return FakeDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: Compiled) -> FakeAllocator:
        from hal_testing.fake.allocator import FakeAllocator

        return FakeAllocator(device)

    @hookimpl
    def hal_make_compilers(self, device: Compiled) -> list[CompilerPair]:
        from hal_testing.fake.compiler import pairs

        return pairs(device)

    @hookimpl
    def hal_make_program(self, device: Any, binary: Binary) -> Program:
        from hal_testing.fake.program import FakeProgram

        return FakeProgram(device, binary)

    @hookimpl
    def hal_doctor(self, family: str) -> list[Check]:
        return [Check("devices", self.devices > 0, f"{self.devices}", "Plug one in.")]


plugin = FakePlugin()

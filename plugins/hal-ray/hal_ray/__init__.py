"""The plugin of the family RAY. Importing it, or listing without a cluster, loads no Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hal_core.compiler import CompilerPair
    from hal_core.device.base import DeviceInfo
    from hal_core.hookspecs import Check
    from hal_core.source import Binary
    from hal_ray.allocator import RayAllocator
    from hal_ray.device import RayDevice
    from hal_ray.program import RayProgram

__version__ = "0.1.0"


class RayPlugin:
    """Every device of a Ray cluster. None is a default: they are asked for by name."""

    hal_api = (1, 0)
    rank = dict.fromkeys(("gpu", "accelerator", "cpu", "interpreter"), -3)  # read-only by contract

    @hookimpl
    def hal_enumerate(self, family: str) -> Sequence[DeviceInfo]:
        from hal_ray.device import enumerate_devices

        return enumerate_devices(family)

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> RayDevice:
        from hal_ray.device import RayDevice

        return RayDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: RayDevice) -> RayAllocator:
        from hal_ray.allocator import RayAllocator

        return RayAllocator(device)

    @hookimpl
    def hal_make_compilers(self, device: RayDevice) -> Sequence[CompilerPair]:
        from hal_ray.compiler import pairs

        return pairs(device)

    @hookimpl
    def hal_make_program(self, device: RayDevice, binary: Binary) -> RayProgram:
        from hal_ray.program import RayProgram

        return RayProgram(device, binary)

    @hookimpl
    def hal_doctor(self, family: str) -> Sequence[Check]:
        from hal_ray.doctor import checks

        return checks(family)


plugin = RayPlugin()


def __getattr__(name: str) -> Any:
    if name == "RayDevice":
        from hal_ray.device import RayDevice

        return RayDevice
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The device PYTHON: the reference interpreter, on every machine that has hal-core.

It is found as every backend is, by an entry point, and is the default where there is no other
device. Kernels run slowly and with every check on. Importing the plugin loads no numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hal_core.hookspecs import Check, hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hal_core.compiler import CompilerPair
    from hal_core.device.base import DeviceInfo
    from hal_core.program import Program
    from hal_core.source import Binary
    from hal_kernel.python.allocator import PythonAllocator
    from hal_kernel.python.device import PythonDevice


class PythonPlugin:
    """The plugin object that the entry point names."""

    hal_api = (1, 0)

    @hookimpl
    def hal_enumerate(self, family: str) -> Sequence[DeviceInfo]:
        from hal_kernel.python.device import describe

        return [describe(family)]

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> PythonDevice:
        from hal_kernel.python.device import PythonDevice

        return PythonDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: PythonDevice) -> PythonAllocator:
        from hal_kernel.python.allocator import PythonAllocator

        return PythonAllocator(device)

    @hookimpl
    def hal_make_compilers(self, device: PythonDevice) -> Sequence[CompilerPair]:
        from hal_kernel.python.compiler import pairs

        return pairs(device)

    @hookimpl
    def hal_make_program(self, device: PythonDevice, binary: Binary) -> Program:
        from hal_kernel.python.program import InterpretedProgram

        return InterpretedProgram(device, binary)

    @hookimpl
    def hal_doctor(self, family: str) -> Sequence[Check]:
        import numpy

        return [Check("numpy", True, numpy.__version__)]


plugin = PythonPlugin()

"""The device under HAL_CHECK=1."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from hal_core.concurrency import devices
from hal_core.device.base import Compiled
from hal_core.errors import HalError, Unsupported
from hal_core.profiling.events import of_thread
from hal_cpu import processor
from hal_cpu.checked.order import Range, order
from hal_cpu.device import CPUDevice
from hal_cpu.settings import CHECK_SECONDS, CHECK_SEED

if TYPE_CHECKING:
    from hal_core.device.base import DeviceInfo
    from hal_core.geometry import Dim3
    from hal_core.program import Program
    from hal_core.source import Binary
    from hal_cpu.checked.allocator import CheckedAllocator
    from hal_kernel.interpreter.prepared import PreparedKernel


class CheckedDevice(CPUDevice):
    """The CPU device under HAL_CHECK=1.

    Order: as for any CPU device. A write beside a block is found when the block is freed, and
    raised by the next launch, `synchronize` or `close`. The last two search all memory.
    """

    allocator: CheckedAllocator
    checked = True

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        self.seconds, self.seed = CHECK_SECONDS.read(), CHECK_SEED.read()
        self.faults: deque[HalError] = deque()  # found but not raised yet
        Compiled._order = order  # of all devices

    @property
    def graph(self) -> None:
        """None: steps run one by one, each of them checked."""
        return None

    def make_allocator(self) -> CheckedAllocator:
        from hal_cpu.checked.allocator import CheckedAllocator

        return CheckedAllocator(self)

    def make_program(self, binary: Binary) -> Program:
        if binary.format == "uops":
            from hal_kernel.python.program import InterpretedProgram

            return InterpretedProgram(self, binary)
        if not processor.is_linux():
            raise Unsupported(
                f"load {binary.name}",
                "machine code under HAL_CHECK=1 runs in a forked child, which hal-cpu has on Linux",
                got=f"compiler {binary.format}",
                device=self.name,
                fix="Leave CPU_CC unset: kernels are interpreted. Or unset HAL_CHECK.",
            )
        from hal_cpu.checked.native import NativeProgram

        return NativeProgram(self, binary)

    def interpret(
        self, kernel: PreparedKernel, geometry: tuple[Dim3, Dim3], args: tuple[Any, ...]
    ) -> None:
        """Run one launch; `args` are addresses and numbers. Raises: KernelFault, DeviceFault."""
        from hal_cpu.checked.interpreted import interpret

        interpret(kernel, self, geometry, args)

    def raise_fault(self) -> None:
        """Raise the oldest fault that was found but not raised yet, if there is one."""
        if self.faults:
            raise self.faults.popleft()

    def check_order(self, work: str, *ranges: Range) -> None:
        """Refuse work of the default queue on memory that another queue uses meanwhile."""
        if not getattr(of_thread, "queue", ""):  # else the queue has been asked
            order.add_of_host(self.name, work, ranges)

    def _synchronize(self, timeout: float | None) -> bool:
        if not super()._synchronize(timeout):
            return False
        if "allocator" in vars(self):  # made at first use; without it there is no memory
            self.allocator.find_damage()
        self.raise_fault()
        return True

    def _close(self) -> None:
        super()._close()
        if not any(isinstance(one, CheckedDevice) and not one.closed for one in devices):
            Compiled._order = None
            order._after_fork()

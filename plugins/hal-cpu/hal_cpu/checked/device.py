"""The device under HAL_CHECK=1."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hal_core.errors import HalError
from hal_cpu.device import CHECK_SECONDS, CHECK_SEED, CPUDevice

if TYPE_CHECKING:
    from hal_core.device import DeviceInfo
    from hal_cpu.checked.allocator import CheckedAllocator


class CheckedDevice(CPUDevice):
    """Order: as of any CPU device. What freed memory shows is raised at the next launch,
    `synchronize` or `close`; the latter two look at all memory."""

    allocator: CheckedAllocator
    checked = True

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        self.seconds, self.seed = CHECK_SECONDS.read(), CHECK_SEED.read()
        self.faults: deque[HalError] = deque()

    def raise_fault(self) -> None:
        if self.faults:
            raise self.faults.popleft()

    def _synchronize(self, timeout: float | None) -> bool:
        if "allocator" in vars(self):
            self.allocator.look()
        self.raise_fault()
        return True

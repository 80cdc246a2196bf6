"""The facts of all devices, and the class of an open one."""

from __future__ import annotations

from typing import Any

from hal_core.device.base import Compiled, DeviceInfo, Limits
from hal_testing.fake import driver
from hal_testing.fake.chip import TIMEOUT

MEMORY_NBYTES = 64 << 20
LIMITS = Limits(
    max_block=(1024, 1024, 64),
    max_block_threads=1024,
    max_grid=(2**31 - 1, 65535, 65535),
    shared_nbytes=32 << 10,
    view_alignment=16,
    max_alloc_nbytes=MEMORY_NBYTES,
)
CAPABILITIES = frozenset(
    {"fp16", "bf16", "fp64", "int64_atomics", "float_atomics", "timing", "disassemble", "pinned"}
)


def enumerate_devices(family: str, count: int, **facts: Any) -> list[DeviceInfo]:
    """Return the facts of every device, without opening one. No device is a normal answer."""
    common = DeviceInfo(
        name=family, kind="accelerator", title="A simulated accelerator",
        memory_nbytes=MEMORY_NBYTES, arch="simulated", compute_units=1, host_visible=False,
        limits=LIMITS, capabilities=CAPABILITIES,
    )._replace(**facts)  # fmt: skip
    names = [f"{family}:{index}" if index else family for index in range(count)]
    return [common._replace(name=name) for name in names]


class FakeDevice(Compiled):
    """One open device.

    Order: work is queued, and done in the order of the calls.
    """

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        self.chip = driver.open_chip(info.memory_nbytes, name)

    def check(self, call: str, status: int) -> None:
        driver.check(call, status, self.name, self.chip.last_error)

    def _synchronize(self, timeout: float | None) -> bool:
        status = self.chip.wait(timeout)
        if status == TIMEOUT:
            return False
        self.check("wait", status)
        return True

    def _close(self) -> None:
        # The core has waited and unloaded programs; memory that buffers hold is freed later.
        self.check("close", self.chip.close())

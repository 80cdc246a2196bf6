"""Call the vendor's library, and turn each status into an exception in one place."""

from __future__ import annotations

from typing import cast

from hal_core.errors import (
    CompileError,
    DeviceFault,
    DeviceUnavailable,
    HalError,
    InvalidState,
    OutOfMemory,
)
from hal_testing.fake import chip
from hal_testing.fake.chip import Chip

_ERRORS: dict[int, type[HalError]] = {
    chip.OUT_OF_MEMORY: OutOfMemory,
    chip.FAULT: DeviceFault,
    chip.LOST: DeviceFault,
    chip.BUSY: DeviceUnavailable,
}
_FIXES = {
    chip.FAULT: "Try the kernel on the CPU with HAL_CHECK=1.",
    chip.LOST: "Close the device and open it again.",
}


def open_chip(memory_nbytes: int, device: str) -> Chip:
    """Open a device. Raises: DeviceUnavailable when the driver refuses."""
    status, opened = chip.open_chip(memory_nbytes)
    check("open", status, device)
    return cast(Chip, opened)


def check(call: str, status: int, device: str, why: str = "") -> None:
    """Raise the error for a status other than OK, with the call, the code and its name."""
    if status == chip.BAD_BINARY:
        raise CompileError(f"fake {call}", "not a kernel that the chip can run", device=device)
    if status != chip.OK:
        raise _ERRORS.get(status, InvalidState)(
            f"fake {call}",
            why or chip.STATUS[status],
            got=f"status {status}, {chip.STATUS[status]}",
            device=device,
            fix=_FIXES.get(status),
        )

"""Calls of the vendor's library, and one place where a status becomes an exception."""

from __future__ import annotations

from hal_core.errors import (
    CompileError,
    DeviceFault,
    HalError,
    InvalidState,
    OutOfMemory,
)
from hal_core.testing.fake import chip
from hal_core.testing.fake.chip import Chip

MEMORY_NBYTES = 64 << 20

_ERRORS: dict[int, type[HalError]] = {
    chip.OUT_OF_MEMORY: OutOfMemory,
    chip.BAD_BINARY: CompileError,
    chip.FAULT: DeviceFault,
    chip.LOST: DeviceFault,
}
_FIXES = {
    chip.FAULT: "Try the kernel on the CPU with HAL_CHECK=1.",
    chip.LOST: "Close the device and open it again.",
}


def count() -> int:
    """Devices of this machine; no context is opened. Zero is a normal answer."""
    return 2


def open_chip(index: int) -> Chip:
    return Chip(MEMORY_NBYTES)


def check(call: str, status: int, device: str, why: str = "") -> None:
    """Raises: what a status other than OK means, with the call, the code and its name."""
    if status != chip.OK:
        raise _ERRORS.get(status, InvalidState)(
            f"fake {call}",
            why or chip.STATUS[status],
            got=f"status {status}, {chip.STATUS[status]}",
            device=device,
            fix=_FIXES.get(status),
        )

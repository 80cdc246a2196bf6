"""The software driver's functions for tests."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from software_driver import Control

SYSTEM = os.environ.get("HAL_TEST_CUDA") == "system"  # the machine's own driver is tested


class Simulator(Control):
    """Control of the software driver."""

    prefix = "cu"

    def keep_faults(self, on: bool) -> None:
        """Let a fault stay with the process, in new contexts too; False ends that."""
        self.driver.sim_sticky(int(on))

    def read_late(self, on: bool) -> None:
        """Let copies read pageable memory when their turn comes, after the call has returned."""
        self.driver.sim_read_late(int(on))

    def set_context(self, handle: int) -> None:
        """Change this thread's context, as another library may do without our knowledge."""
        self._must("cuCtxSetCurrent", ctypes.c_void_p(handle))

    def retain_contexts(self, count: int) -> None:
        """Retain the primary contexts of that many devices."""
        for index in range(count):
            context = ctypes.c_void_p()
            self._must("cuDevicePrimaryCtxRetain", ctypes.byref(context), index)

    def release_contexts(self, count: int, first: int = 0) -> None:
        for index in range(first, first + count):
            self._must("cuDevicePrimaryCtxRelease_v2", index)

    def _must(self, call: str, *arguments: Any) -> None:
        code = getattr(self.driver, call)(*arguments)
        if code:
            raise RuntimeError(f"{call} gave {code}")

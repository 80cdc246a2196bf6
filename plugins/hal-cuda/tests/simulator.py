"""The software driver's functions for tests."""

import ctypes
import os

from software_driver import Control

SYSTEM = os.environ.get("HAL_TEST_CUDA") == "system"  # the machine's own driver is tested


class Simulator(Control):
    """Control of the software driver."""

    prefix = "cu"

    def keep_faults(self, on):
        """Let a fault stay with the process, in new contexts too; False ends that."""
        self.driver.sim_sticky(int(on))

    def read_late(self, on):
        """Let copies read pageable memory when their turn comes, after the call has returned."""
        self.driver.sim_read_late(int(on))

    def set_context(self, handle):
        """Change this thread's context, as another library may do without our knowledge."""
        self._must("cuCtxSetCurrent", ctypes.c_void_p(handle))

    def retain_contexts(self, count):
        """Retain the primary contexts of that many devices."""
        for index in range(count):
            context = ctypes.c_void_p()
            self._must("cuDevicePrimaryCtxRetain", ctypes.byref(context), index)

    def release_contexts(self, count, first=0):
        for index in range(first, first + count):
            self._must("cuDevicePrimaryCtxRelease_v2", index)

    def _must(self, call, *arguments):
        code = getattr(self.driver, call)(*arguments)
        if code:
            raise RuntimeError(f"{call} gave {code}")

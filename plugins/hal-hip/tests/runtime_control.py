"""The software runtime's functions for tests."""

import os

from software_driver import Control

SYSTEM = os.environ.get("HAL_TEST_HIP") == "system"  # the machine's own runtime is tested


class Runtime(Control):
    """Control of the software runtime."""

    prefix = "hip"

    def set_device(self, index):
        """Change this thread's device, as another library may do without our knowledge."""
        code = self.driver.hipSetDevice(index)
        if code:
            raise RuntimeError(f"hipSetDevice gave {code}")

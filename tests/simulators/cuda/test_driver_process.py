"""A process that reads a device address."""

import subprocess
import sys
from pathlib import Path


def test_the_host_cannot_touch_device_memory(cuda_folder):
    script = f"""
import ctypes, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from driver_calls import Driver
driver = Driver({str(cuda_folder / "libcuda.so.1")!r})
driver.start()
ctypes.string_at(driver.alloc(64), 1)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert done.returncode == -11

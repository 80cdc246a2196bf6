"""A process that leaves with work in flight, that forks, that reads a device address."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHILD = """
import ctypes, os, sys, threading, time
sys.path.insert(0, {here!r})
from driver_calls import Driver
from driver_kernels import *
driver = Driver({library!r})
"""


def child(
    folder: Path, script: str, timeout: float = 60, **env: str
) -> subprocess.CompletedProcess[str]:
    here = str(Path(__file__).parent)
    start = CHILD.format(here=here, library=str(folder / "libcuda.so.1"))
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", start + script],  # of os.fork
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"PYTHONOPTIMIZE": ""} | env,  # its asserts count under `python -O` too
        check=False,
    )


def test_the_host_cannot_touch_device_memory(cuda_folder: Path) -> None:
    script = """
driver.start()
ctypes.string_at(driver.alloc(64), 1)
"""
    assert child(cuda_folder, script).returncode == -11

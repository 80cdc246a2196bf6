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


def test_leaving_with_a_kernel_that_never_ends(cuda_folder: Path) -> None:
    script = """
driver.start()
module = driver.module(FOREVER)
driver.launch(driver.function(module, "forever"))
time.sleep(0.2)
print("left", flush=True)
"""
    done = child(cuda_folder, script, SIM_CUDA_INSTRUCTIONS="1000000000000")
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")


def test_leaving_with_copies_in_flight(cuda_folder: Path) -> None:
    script = """
driver.start()
driver.delay("cuMemcpyHtoDAsync", 0.05)
host, memory, stream = driver.get("cuMemAllocHost", 64), driver.alloc(64), driver.stream()
for _ in range(100):
    driver.cuMemcpyHtoDAsync(memory, host, 64, stream)
print("left", flush=True)
"""
    done = child(cuda_folder, script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")


def test_a_forked_child_is_refused_at_once(cuda_folder: Path) -> None:
    script = """
driver.start()
memory, stream = driver.alloc(64), driver.stream()
driver.delay("cuLaunchKernel", 0.1)
driver.launch(driver.function(driver.module(FILL), "fill"), memory, ctypes.c_uint32(1))
pid = os.fork()
if pid == 0:
    out = ctypes.c_uint64()
    codes = [driver.code.cuCtxSynchronize(), driver.code.cuMemAlloc(ctypes.byref(out), 64),
             driver.code.cuStreamSynchronize(stream), driver.code.cuInit(0),
             driver.code.cuDeviceGetCount(ctypes.byref(out)), driver.code.cuMemFree(memory)]
    print(codes, flush=True)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(driver.words(memory, 1))
"""
    done = child(cuda_folder, script)
    assert (done.stdout, done.stderr) == ("[3, 3, 3, 3, 3, 3]\n(1,)\n", "")


def test_a_child_of_a_parent_that_never_called_works(cuda_folder: Path) -> None:
    script = """
pid = os.fork()
driver.start()
driver.write(driver.alloc(4), b"work")
if pid == 0:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    done = child(cuda_folder, script)
    assert (done.stdout, done.stderr) == ("7\n", "")

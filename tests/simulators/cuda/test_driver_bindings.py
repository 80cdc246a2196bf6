"""Unmodified cuda-bindings and PyCUDA on the software driver, each in a child of its own."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# Of PyCUDA 2026.1's own tests: how many pass, and what marks those that cannot.
PASSES = {"cumath": 28, "driver": 19, "gpuarray": 207}
CANNOT = (
    "get_curand_version",  # built without curand: 37 tests
    "test_jit_link_module",  # cuLink is left out
    "test_recursive_launch",  # and with it kernels that launch kernels
    "test_pow_array",  # pow(float, double) is ambiguous to NVRTC, not to nvcc
)


def missing(*names: str) -> str:
    """Why these cannot be used here; empty where they can."""
    for name in names:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return f"{name} is not installed"
    return ""


@functools.cache
def nvrtc_version() -> str:
    """The version of the NVRTC that cuda-bindings loads, such as "13.0"; empty without one."""
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError):
        return ""
    return f"{major}.{minor}"


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a child. Its asserts count under `python -O` too.

    Its driver is as new as NVRTC, whose PTX an older one refuses.
    """
    paths = {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(HERE)}
    if nvrtc_version():
        paths["SIM_CUDA_DRIVER"] = nvrtc_version()
    return os.environ | {"PYTHONOPTIMIZE": ""} | paths | more


def run(folder: Path, *command: str, **env: str) -> str:
    done = subprocess.run(
        (sys.executable, *command),
        env=environment(folder, **env),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("schedule", ["barrier", "lockstep"])
@pytest.mark.parametrize("program", ["saxpy", "reduction"])
def test_kernels_from_nvrtc(cuda_folder: Path, program: str, schedule: str) -> None:
    if not nvrtc_version():
        pytest.skip("cuda-bindings finds no NVRTC")
    run(cuda_folder, str(HERE / "bindings_programs.py"), program, SIM_CUDA_SCHEDULE=schedule)


@pytest.mark.parametrize("program", ["failures", "two_devices", "libraries", "codes", "forked"])
def test_programs(cuda_folder: Path, program: str) -> None:
    if why := missing("cuda.bindings"):
        pytest.skip(why)
    if program in ("failures", "libraries") and not nvrtc_version():
        pytest.skip("cuda-bindings finds no NVRTC")
    run(cuda_folder, "-W", "ignore", str(HERE / "bindings_programs.py"), program)


def test_no_device(cuda_folder: Path) -> None:
    if why := missing("cuda.bindings"):
        pytest.skip(why)
    run(cuda_folder, str(HERE / "bindings_programs.py"), "no_device", SIM_CUDA_DEVICES="0")


PYCUDA = """
import numpy as np
import pycuda_nvrtc
import pycuda.autoinit
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray

x = gpuarray.to_gpu(np.arange(1000, dtype=np.float32))
assert ((2 * x + 1).get() == 2 * np.arange(1000) + 1).all()
assert gpuarray.sum(x).get() == np.arange(1000).sum()
assert gpuarray.dot(x[:64], x[:64]).get() == (np.arange(64) ** 2).sum()

ptx = pycuda_nvrtc.compile_to_ptx('''
extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }
''', [])
function = drv.module_from_buffer(ptx).get_function("twice")
data = np.arange(32, dtype=np.float32)
function(drv.InOut(data), block=(32, 1, 1), grid=(1, 1))
assert (data == 2 * np.arange(32)).all()

start, end = drv.Event(), drv.Event()
start.record()
function(x, block=(32, 1, 1), grid=(1, 1))
end.record()
end.synchronize()
assert start.time_till(end) > 0
try:
    function(np.intp(64), block=(32, 1, 1), grid=(1, 1))
    drv.Context.synchronize()
except drv.LogicError as error:
    assert "illegal memory access" in str(error), error
else:
    raise SystemExit("no error")
print("done")
"""


def test_pycuda(cuda_folder: Path) -> None:
    if why := missing("pycuda"):
        pytest.skip(why)
    if not nvrtc_version():
        pytest.skip("cuda-bindings finds no NVRTC")
    # Its reductions are warp-synchronous: they need the warps to step together.
    assert "done" in run(cuda_folder, "-W", "ignore", "-c", PYCUDA, SIM_CUDA_SCHEDULE="lockstep")


@pytest.mark.parametrize("name", PASSES)
def test_pycuda_by_its_own_tests(cuda_folder: Path, name: str) -> None:
    """PYCUDA_TESTS names the `test` folder of its sdist."""
    if why := missing("pycuda"):
        pytest.skip(why)
    if not nvrtc_version():
        pytest.skip("cuda-bindings finds no NVRTC")
    folder = os.environ.get("PYCUDA_TESTS")
    if not folder:
        pytest.skip("PYCUDA_TESTS does not name the `test` folder of PyCUDA's sdist")
    plugins = ("-p", "pycuda_nvrtc", "-p", "no:cacheprovider")
    command = (sys.executable, "-m", "pytest", "-q", "-rf", *plugins, f"test_{name}.py")
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(cuda_folder, SIM_CUDA_SCHEDULE="lockstep", COLUMNS="300"),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=580,
        check=False,
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert [line for line in failed if not any(mark in line for mark in CANNOT)] == []
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout + done.stderr
    assert int(passed[1]) >= PASSES[name]

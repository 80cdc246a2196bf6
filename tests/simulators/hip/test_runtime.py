"""The software HIP runtime through ctypes: devices, memory, streams, modules, faults, controls."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hip_build
import numpy as np
import pytest

Compile = Callable[..., bytes]
Load = Callable[..., "Runtime"]
KERNELS = """
extern "C" __global__ void add(int *y, int by) { y[blockIdx.x * blockDim.x + threadIdx.x] += by; }
extern "C" __global__ void wild(int *y) { y[1 << 20] = 1; }
extern "C" __global__ void trap() { __builtin_trap(); }
extern "C" __global__ __launch_bounds__(64) void narrow(int *y) { *y = 1; }
__device__ int numbers[4] = {3, 5, 7, 9};
"""


class Runtime:
    """Every function as an attribute, which gives its status."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.sim_live.restype = ctypes.c_char_p
        self.library.sim_message.restype = ctypes.c_char_p

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(self.library, name)

        def call(*values: Any) -> int:
            wide = [ctypes.c_uint64(v & (1 << 64) - 1) if isinstance(v, int) else v for v in values]
            return int(function(*wide))

        return call

    def get(self, name: str, *values: Any) -> int:
        """Return what a function writes to its first argument; its status must be success."""
        out = ctypes.c_uint64()
        assert getattr(self, name)(ctypes.byref(out), *values) == 0, (name, self.message())
        return out.value

    def live(self) -> dict[str, int]:
        return {name: count for name, count in json.loads(self.library.sim_live()).items() if count}

    def message(self) -> str:
        return str(self.library.sim_message().decode())

    def launch(self, function: int, *arguments: Any, block: int = 1, stream: int = 0) -> int:
        held = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        pointers = (ctypes.c_void_p * max(1, len(held)))(*(ctypes.addressof(a) for a in held))
        launch = self.hipModuleLaunchKernel
        return launch(function, 1, 1, 1, block, 1, 1, 0, stream, pointers, None)

    def words(self, address: int, count: int) -> list[int]:
        out = np.zeros(count, np.int32)
        assert self.hipMemcpy(out.ctypes.data, address, 4 * count, 2) == 0
        return [int(value) for value in out]


@pytest.fixture(scope="session")
def hip_library() -> Path:
    try:
        return hip_build.build(hip_build.kept())
    except hip_build.NoCompiler as missing:
        pytest.skip(str(missing))


@pytest.fixture
def load(hip_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Gives a runtime that nobody has called, with SIM_HIP_* as the keywords say."""

    def load(**settings: object) -> Runtime:
        for name, value in settings.items():
            monkeypatch.setenv(f"SIM_HIP_{name.upper()}", str(value))
        # The loader keeps a library by its file: another file is another runtime.
        copy = tmp_path / f"libamdhip64-{len(list(tmp_path.iterdir()))}.so"
        shutil.copyfile(hip_library, copy)
        return Runtime(copy)

    return load


@pytest.fixture
def hip(load: Load) -> Iterator[Runtime]:
    """A runtime that the test must leave clean."""
    runtime = load()
    yield runtime
    assert set(runtime.live()) <= {"contexts"}


@pytest.fixture
def module(hip: Runtime, hiprtc: Compile) -> Iterator[int]:
    handle = hip.get("hipModuleLoadData", hiprtc(KERNELS))
    yield handle
    assert hip.hipModuleUnload(handle) in (0, 400)


def test_two_devices_and_what_they_are(hip: Runtime) -> None:
    assert hip.get("hipGetDeviceCount") == 2
    name = ctypes.create_string_buffer(256)
    assert hip.hipDeviceGetName(name, 256, 1) == 0
    assert name.value == b"Software HIP device 1"
    assert [hip.get("hipDeviceGetAttribute", which, 0) for which in (56, 87, 74)] == [
        1024,
        64,
        65536,
    ]
    # Each layout has the architecture where its own version of HIP put it.
    for call, place in (("hipGetDevicePropertiesR0600", 1160), ("hipGetDeviceProperties", 396)):
        properties = ctypes.create_string_buffer(4096)
        assert getattr(hip, call)(properties, 0) == 0
        assert properties.raw[place:].startswith(b"gfx906:sramecc+:xnack-\0")
    assert hip.hipSetDevice(2) == hip.hipDeviceGetAttribute(name, 56, -1) == 101


def test_kernels_streams_and_events(hip: Runtime, module: int) -> None:
    add = hip.get("hipModuleGetFunction", module, b"add")
    stream, before, after = hip.get("hipStreamCreateWithFlags", 1), *(
        hip.get("hipEventCreateWithFlags", 0) for _ in range(2)
    )  # fmt: skip
    memory = hip.get("hipMalloc", 4 * 64)
    assert hip.hipMemsetD32Async(memory, 5, 64, stream) == 0
    assert hip.hipEventRecord(before, stream) == 0
    for by in (10, 20):
        assert hip.launch(add, memory, ctypes.c_int(by), block=64, stream=stream) == 0
    assert hip.hipEventRecord(after, stream) == 0
    assert hip.hipEventSynchronize(after) == 0
    took = ctypes.c_float(-1)
    assert hip.hipEventElapsedTime(ctypes.byref(took), before, after) == 0
    assert took.value > 0
    assert hip.words(memory, 64) == [35] * 64
    numbers = ctypes.c_uint64()
    address = hip.get("hipModuleGetGlobal", ctypes.byref(numbers), module, b"numbers")
    assert (numbers.value, hip.words(address, 4)) == (16, [3, 5, 7, 9])
    for call, handle in (
        ("hipFree", memory), ("hipEventDestroy", before), ("hipEventDestroy", after),
        ("hipStreamDestroy", stream),
    ):  # fmt: skip
        assert getattr(hip, call)(handle) == 0
        assert getattr(hip, call)(handle) in (1, 400)  # a destroyed handle is known as one


def test_what_a_launch_may_not_ask(hip: Runtime, module: int) -> None:
    narrow = hip.get("hipModuleGetFunction", module, b"narrow")
    out, held = ctypes.c_uint64(), (ctypes.c_void_p * 1)(0)
    launch = hip.hipModuleLaunchKernel
    assert launch(narrow, 1, 1, 1, 65, 1, 1, 0, 0, held, None) == 701
    assert launch(narrow, 0, 1, 1, 64, 1, 1, 0, 0, held, None) == 1
    assert launch(narrow, 1, 1, 1, 1025, 1, 1, 0, 0, held, None) == 1
    assert launch(narrow, 1, 1, 1, 64, 1, 1, 65537, 0, held, None) == 1
    assert launch(narrow, 1, 1, 1, 64, 1, 1, 0, 0, None, None) == 1
    assert hip.hipModuleGetFunction(ctypes.byref(out), module, b"absent") == 500
    assert hip.hipModuleLoadData(ctypes.byref(out), b"no object" * 20) == 200


def test_copies_know_their_direction_and_bounds(hip: Runtime) -> None:
    memory, host = hip.get("hipMalloc", 64), np.arange(16, dtype=np.int32)
    assert hip.hipMemcpy(memory, host.ctypes.data, 64, 1) == 0
    assert hip.hipMemcpy(memory, host.ctypes.data, 64, 2) == 1
    assert hip.hipMemcpy(memory, host.ctypes.data, 65, 4) == 1
    assert hip.words(memory, 16) == list(range(16))
    pinned = hip.get("hipHostMalloc", 64, 3)
    assert [hip.get("hipPointerGetAttribute", 2, a) for a in (pinned, memory)] == [1, 2]
    assert hip.hipMemcpyAsync(pinned, memory, 64, 4, 0) == hip.hipDeviceSynchronize() == 0
    assert ctypes.string_at(pinned, 64) == host.tobytes()
    assert hip.hipHostFree(pinned) == hip.hipFree(memory) == 0


@pytest.mark.parametrize(("kernel", "code"), [("wild", 700), ("trap", 719)])
def test_a_fault_stays_until_the_device_is_reset(
    load: Load, hiprtc: Compile, kernel: str, code: int
) -> None:
    hip = load()
    image = hiprtc(KERNELS)
    module, memory = hip.get("hipModuleLoadData", image), hip.get("hipMalloc", 64)
    function = hip.get("hipModuleGetFunction", module, kernel.encode())
    assert hip.launch(function, memory) == 0
    assert hip.hipDeviceSynchronize() == hip.hipDeviceSynchronize() == code
    assert kernel in hip.message()
    out = ctypes.c_uint64()
    assert hip.hipMalloc(ctypes.byref(out), 64) == code
    assert hip.hipDeviceReset() == 0
    assert hip.hipFree(hip.get("hipMalloc", 64)) == 0
    assert hip.live() == {"contexts": 1, "abandoned": 2}  # the module, and the memory


def test_a_memory_fault_ends_the_process_on_request(
    hip_library: Path, hiprtc: Compile, tmp_path: Path
) -> None:
    image = tmp_path / "image"
    image.write_bytes(hiprtc(KERNELS))
    text = f"""
        import ctypes
        hip = ctypes.CDLL({str(hip_library)!r})
        module, function, memory = (ctypes.c_void_p() for _ in range(3))
        assert not hip.hipModuleLoad(ctypes.byref(module), {str(image)!r}.encode())
        assert not hip.hipModuleGetFunction(ctypes.byref(function), module, b"wild")
        assert not hip.hipMalloc(ctypes.byref(memory), ctypes.c_size_t(64))
        held = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
        assert not hip.hipModuleLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, held, None)
        hip.hipDeviceSynchronize()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True, text=True, env={**os.environ, "SIM_HIP_FAULT": "abort"}, timeout=60,
    )  # fmt: skip
    assert done.returncode == -6
    assert "Memory access fault by GPU" in done.stderr


def test_failures_and_counts_on_request(hip: Runtime) -> None:
    out = ctypes.c_uint64()
    hip.sim_fail(b"hipMalloc", 2, 2)
    assert [hip.hipMalloc(ctypes.byref(out), 16) for _ in range(2)] == [0, 2]
    assert hip.hipFree(out.value) == 0
    assert hip.sim_calls(b"hipMalloc") == 2
    name = hip.library.hipGetErrorName
    name.restype = ctypes.c_char_p
    assert (name(2), name(12345)) == (b"hipErrorOutOfMemory", b"hipErrorUnknown")

"""What goes wrong: in kernels, on request, and with the whole device."""

from __future__ import annotations

import ctypes
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import build
import pytest
from driver_calls import Driver
from driver_kernels import ASSERT, FILL, FOREVER, TRAP

Load = Callable[..., Driver]
UINT = ctypes.c_uint32

# Answered by a driver that has nothing but itself: no failure can be asked of them.
ALWAYS = {
    "cuGetErrorName", "cuGetErrorString", "cuGetProcAddress", "cuGetExportTable",
}  # fmt: skip


def broken(cuda: Driver, text: str, name: str, *arguments: object) -> int:
    """The code that a launch leaves behind."""
    cuda.launch(cuda.function(cuda.module(text), name), *arguments)
    return cuda.code.cuCtxSynchronize()


@pytest.fixture
def failing(load_driver: Load) -> Driver:
    """A driver that a test may leave unclean."""
    driver = load_driver(instructions=100_000)
    driver.start()
    return driver


# -- kernels


@pytest.mark.parametrize(
    ("text", "name", "code", "message"),
    [
        (TRAP, "trap", 719, "trap"),
        (FOREVER, "forever", 702, "instructions"),
        (ASSERT, "fails", 710, "what"),
    ],
)
def test_kernels_that_fail(failing: Driver, text: str, name: str, code: int, message: str) -> None:
    assert broken(failing, text, name) == code
    assert message in failing.message()
    assert failing.message().startswith(f"{name}: ")


@pytest.mark.parametrize(("offset", "code"), [(64, 700), (-4, 700), (2, 716)])
def test_kernels_that_leave_their_memory(failing: Driver, offset: int, code: int) -> None:
    memory = failing.alloc(64)
    assert broken(failing, FILL, "fill", memory + offset, UINT(1)) == code


def test_freed_and_foreign_memory(failing: Driver) -> None:
    freed = failing.alloc(64)
    failing.cuMemFree(freed)
    assert broken(failing, FILL, "fill", freed, UINT(1)) == 700
    foreign = ctypes.c_uint32(5)
    failing.use(1)
    assert broken(failing, FILL, "fill", ctypes.addressof(foreign), UINT(1)) == 700
    assert foreign.value == 5


def test_an_error_stays_until_the_context_goes(failing: Driver) -> None:
    stream, event, memory = failing.stream(), failing.event(), failing.alloc(64)
    function = failing.function(failing.module(FILL), "fill")
    out = ctypes.c_uint64()
    assert broken(failing, TRAP, "trap") == 719
    codes = {
        "alloc": failing.code.cuMemAlloc(ctypes.byref(out), 4),
        "free": failing.code.cuMemFree(memory),
        "copy": failing.code.cuMemcpyDtoH(ctypes.create_string_buffer(4), memory, 4),
        "launch": failing.launch_code(function, memory, UINT(1)),
        "stream": failing.code.cuStreamCreate(ctypes.byref(out), 0),
        "query": failing.code.cuStreamQuery(stream),
        "wait": failing.code.cuEventSynchronize(event),
        "event": failing.code.cuEventDestroy(event),
        "module": failing.code.cuModuleLoadData(ctypes.byref(out), FILL.encode()),
        "again": failing.code.cuCtxSynchronize(),
    }
    assert set(codes.values()) == {719}, codes
    assert failing.get("cuCtxGetDevice", kind=ctypes.c_int) == 0
    failing.use(1)
    failing.cuMemFree(failing.alloc(64))  # the other device works
    failing.cuDevicePrimaryCtxReset(0)
    assert failing.code.cuCtxSetCurrent(failing.contexts.pop(0)) == 709
    failing.use(0)
    failing.cuMemFree(failing.alloc(64))


def test_an_error_that_stays_with_the_process(failing: Driver) -> None:
    failing.library.sim_sticky(1)
    assert broken(failing, TRAP, "trap") == 719
    failing.cuDevicePrimaryCtxReset(0)
    failing.contexts.pop(0)
    out = ctypes.c_uint64()
    failing.use(0)
    assert failing.code.cuMemAlloc(ctypes.byref(out), 4) == 719
    failing.use(1)
    failing.cuMemFree(failing.alloc(64))  # the other device works
    failing.library.sim_sticky(0)
    failing.cuDevicePrimaryCtxReset(0)
    failing.contexts.pop(0)
    failing.use(0)
    failing.cuMemFree(failing.alloc(64))


def test_work_behind_an_error_is_not_done(failing: Driver) -> None:
    host = failing.get("cuMemAllocHost", 4)
    word = UINT.from_address(host)
    word.value = 5
    memory, stream = failing.alloc(4), failing.stream()
    failing.delay("cuLaunchKernel", 0.05)
    failing.launch(failing.function(failing.module(TRAP), "trap"), stream=stream)
    failing.cuMemsetD32Async(memory, 9, 1, stream)
    failing.cuMemcpyDtoHAsync(host, memory, 4, stream)
    assert failing.code.cuStreamSynchronize(stream) == 719
    assert word.value == 5


def test_callbacks_hear_of_the_error(failing: Driver) -> None:
    heard = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    kept = kind(lambda _stream, status, _data: heard.append(status))
    failing.delay("cuLaunchKernel", 0.05)
    failing.launch(failing.function(failing.module(TRAP), "trap"))
    failing.cuStreamAddCallback(0, kept, None, 0)
    failing.cuStreamAddCallback(0, kept, None, 0)
    failing.code.cuCtxSynchronize()
    assert heard == [719, 719]


def test_memory_freed_before_its_turn(failing: Driver) -> None:
    first, second = failing.stream(1), failing.stream(1)
    memory, target = failing.get("cuMemAllocAsync", 16, first), failing.alloc(16)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    gate = threading.Event()
    kept = kind(lambda _data: gate.wait(30) and None)
    failing.cuLaunchHostFunc(second, kept, None)
    failing.cuMemcpyDtoDAsync(target, memory, 16, second)
    failing.cuMemFreeAsync(memory, first)
    failing.cuStreamSynchronize(first)
    gate.set()
    assert failing.code.cuStreamSynchronize(second) == 700
    assert "freed before" in failing.message()


# -- on request


def exported(library: Path) -> list[str]:
    """Names of functions as callers spell them, from the sources that define them."""
    sources = (path for folder in build.FOLDERS for path in folder.glob("*.cpp"))
    text = "".join(path.read_text() for path in sources)
    entry = r"^(?:EXPORT CUresult |NOT_SUPPORTED\(|EXPORT Status ENTRY\()(cu\w+)"
    names = re.findall(entry, text, re.MULTILINE)
    assert len(names) > 180
    return sorted({re.sub(r"_v\d$", "", name) for name in names} - ALWAYS)


def test_every_function_fails_on_request(failing: Driver, cuda_folder: Path) -> None:
    memory, stream = failing.alloc(64), failing.stream()
    before = failing.live()
    room = ctypes.create_string_buffer(4096)
    wrong = []
    for name in exported(cuda_folder):
        counted = failing.calls(name)
        failing.fail(name, 1, 999)
        code = getattr(failing.code, name)(*([ctypes.byref(room)] * 12))
        if code != 999 or failing.calls(name) != counted + 1:
            wrong.append((name, code))
    assert wrong == []
    assert failing.live() == before
    assert room.raw == bytes(4096)
    failing.cuMemFree(memory)
    failing.cuStreamDestroy(stream)
    failing.stop()


def test_the_nth_call_fails(failing: Driver) -> None:
    cuda = failing
    out = ctypes.c_uint64()
    cuda.fail("cuMemAlloc_v2", 3, 2)
    cuda.fail("cuMemAlloc", 4, 719)
    codes = [cuda.code.cuMemAlloc(ctypes.byref(out), 4) for _ in range(5)]
    assert codes == [0, 0, 2, 719, 0]
    assert cuda.calls("cuMemAlloc") == 5
    cuda.fail("cuMemAlloc", 2, 2)
    cuda.library.sim_reset_counts()
    assert cuda.calls("cuMemAlloc") == 0
    assert [cuda.code.cuMemAlloc(ctypes.byref(out), 4) for _ in range(3)] == [0, 2, 0]
    cuda.fail("cuMemAlloc", 1, 2)
    cuda.library.sim_clear()
    cuda.cuMemAlloc(ctypes.byref(out), 4)
    assert cuda.library.sim_all_calls() == b"cuMemAlloc 4\n"


def test_a_kernel_that_fails_late(failing: Driver) -> None:
    failing.fail("run", 2, 700)
    function, memory = failing.function(failing.module(FILL), "fill"), failing.alloc(4)
    failing.launch(function, memory, UINT(1))
    failing.cuCtxSynchronize()
    failing.launch(function, memory, UINT(2))
    assert failing.code.cuCtxSynchronize() == 700
    assert failing.message().startswith("fill: ")


def test_failures_from_the_environment(load_driver: Load) -> None:
    cuda = load_driver(fail="cuMemAlloc:2:2,cuStreamCreate:1:999", delay="cuEventCreate:50000")
    cuda.start()
    out = ctypes.c_uint64()
    cuda.alloc(4)
    assert cuda.code.cuMemAlloc(ctypes.byref(out), 4) == 2
    assert cuda.code.cuStreamCreate(ctypes.byref(out), 0) == 999
    start = time.monotonic()
    cuda.event()
    assert time.monotonic() - start >= 0.05


def test_a_slow_call_is_slow_where_the_work_is(cuda: Driver) -> None:
    memory, stream = cuda.alloc(4), cuda.stream()
    cuda.delay("cuMemsetD32Async", 1.0)
    start = time.monotonic()
    cuda.cuMemsetD32Async(memory, 0, 1, stream)
    assert cuda.code.cuStreamQuery(stream) == 600
    cuda.cuStreamSynchronize(stream)
    assert time.monotonic() - start >= 1.0
    cuda.cuStreamDestroy(stream)
    cuda.cuMemFree(memory)


# -- the device


def test_a_lost_device(failing: Driver) -> None:
    memory = failing.alloc(64)
    failing.use(1)
    other = failing.alloc(64)
    failing.library.sim_lose(0, 0)
    failing.cuMemFree(other)
    assert failing.code.cuMemcpyDtoD(other, memory, 4) == 1
    assert failing.code.cuCtxSetCurrent(failing.contexts[0]) == 0
    assert failing.code.cuMemFree(memory) == 46
    assert failing.code.cuCtxSynchronize() == 46
    assert failing.message() == "the device was lost"
    failing.cuDevicePrimaryCtxReset(0)
    out = ctypes.c_uint64()
    assert failing.code.cuDevicePrimaryCtxRetain(ctypes.byref(out), 0) == 46
    failing.library.sim_lose(0, 1)
    failing.cuDevicePrimaryCtxRetain(ctypes.byref(out), 0)


def test_a_device_is_lost_under_a_kernel(load_driver: Load) -> None:
    driver = load_driver()
    driver.start()
    driver.launch(driver.function(driver.module(FILL), "fill"), driver.alloc(4 << 20), UINT(1),
                  grid=(4096, 1, 1), block=(256, 1, 1))  # fmt: skip
    driver.library.sim_lose(0, 0)
    assert driver.code.cuCtxSynchronize() == 46
    driver.cuDevicePrimaryCtxReset(0)

"""Coming up, devices, contexts, names of functions and codes."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest
from driver_calls import NOT_INITIALIZED, Driver
from driver_kernels import FILL

Load = Callable[..., Driver]


# -- coming up


def test_nothing_works_before_init(load_driver: Load) -> None:
    driver = load_driver()
    out = ctypes.c_uint64()
    assert driver.code.cuDeviceGetCount(ctypes.byref(out)) == NOT_INITIALIZED
    assert driver.code.cuMemAlloc(ctypes.byref(out), 4) == NOT_INITIALIZED
    assert driver.code.cuCtxGetCurrent(ctypes.byref(out)) == NOT_INITIALIZED
    assert driver.code.cuInit(1) == 1
    assert driver.get("cuDriverGetVersion", kind=ctypes.c_int) == 12090
    driver.cuInit(0)
    driver.cuInit(0)
    assert driver.get("cuDeviceGetCount", kind=ctypes.c_int) == 2


@pytest.mark.parametrize("count", [1, 3, 8])
def test_as_many_devices_as_asked(load_driver: Load, count: int) -> None:
    driver = load_driver(devices=count)
    driver.cuInit(0)
    assert driver.get("cuDeviceGetCount", kind=ctypes.c_int) == count
    assert driver.code.cuDeviceGet(ctypes.byref(ctypes.c_int()), count) == 101
    assert driver.code.cuDeviceGet(ctypes.byref(ctypes.c_int()), -1) == 101


def test_no_device(load_driver: Load) -> None:
    assert load_driver(devices=0).code.cuInit(0) == 100


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("-1", 0), ("1", 1), ("0,1", 2), ("1,9,0", 1)]
)
def test_visible_devices(
    load_driver: Load, monkeypatch: pytest.MonkeyPatch, text: str, count: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    driver = load_driver()
    assert driver.code.cuInit(0) == (0 if count else 100)
    if count:
        assert driver.get("cuDeviceGetCount", kind=ctypes.c_int) == count


def test_settings_are_read(load_driver: Load) -> None:
    driver = load_driver(cc="8.6", driver="13.1", memory=1 << 20)
    driver.start()
    assert driver.get("cuDriverGetVersion", kind=ctypes.c_int) == 13010
    assert driver.get("cuDeviceGetAttribute", 75, 0, kind=ctypes.c_int) == 8
    assert driver.get("cuDeviceGetAttribute", 76, 0, kind=ctypes.c_int) == 6
    assert driver.get("cuDeviceTotalMem", 0) == 1 << 20


def test_devices_differ(cuda: Driver) -> None:
    def text(name: str, device: int, size: int) -> bytes:
        out = ctypes.create_string_buffer(size)
        if name == "cuDeviceGetUuid":
            getattr(cuda, name)(out, device)
        else:
            getattr(cuda, name)(out, size, device)
        return out.raw

    for name, size in (
        ("cuDeviceGetName", 64),
        ("cuDeviceGetUuid", 16),
        ("cuDeviceGetPCIBusId", 32),
    ):
        assert text(name, 0, size) != text(name, 1, size)
    assert (
        cuda.get("cuDeviceGetByPCIBusId", text("cuDeviceGetPCIBusId", 1, 32), kind=ctypes.c_int)
        == 1
    )
    assert cuda.code.cuDeviceGetAttribute(ctypes.byref(ctypes.c_int()), 0, 0) == 1
    assert cuda.code.cuDeviceGetAttribute(ctypes.byref(ctypes.c_int()), 1, 2) == 101


# -- contexts


def test_contexts_are_a_stack_of_each_thread(cuda: Driver) -> None:
    primary = cuda.contexts[0]
    own = cuda.get("cuCtxCreate", 0, 1)
    assert cuda.get("cuCtxGetCurrent") == own
    assert cuda.get("cuCtxGetDevice", kind=ctypes.c_int) == 1
    seen = []
    thread = threading.Thread(target=lambda: seen.append(cuda.get("cuCtxGetCurrent")))
    thread.start()
    thread.join()
    assert seen == [0]
    assert cuda.get("cuCtxPopCurrent") == own
    assert cuda.get("cuCtxGetCurrent") == primary
    cuda.cuCtxPushCurrent(own)
    cuda.cuCtxDestroy(own)  # and off the stack with it
    assert cuda.get("cuCtxGetCurrent") == primary


def test_no_context_is_current(cuda: Driver) -> None:
    cuda.cuCtxSetCurrent(None)
    out = ctypes.c_uint64()
    assert cuda.code.cuMemAlloc(ctypes.byref(out), 4) == 201
    assert cuda.code.cuCtxGetDevice(ctypes.byref(out)) == 201
    assert cuda.code.cuCtxPopCurrent(ctypes.byref(out)) == 201
    assert cuda.code.cuCtxSynchronize() == 201


def test_a_destroyed_context(cuda: Driver) -> None:
    own = cuda.get("cuCtxCreate", 0, 0)
    done = threading.Event()
    ready = threading.Event()
    codes = []

    def use_it() -> None:
        cuda.cuCtxSetCurrent(own)
        ready.set()
        done.wait()
        codes.append(cuda.code.cuMemAlloc(ctypes.byref(ctypes.c_uint64()), 4))

    thread = threading.Thread(target=use_it)
    thread.start()
    ready.wait()
    cuda.cuCtxDestroy(own)
    done.set()
    thread.join()
    assert codes == [709]
    assert cuda.code.cuCtxSetCurrent(own) == 709
    assert cuda.code.cuCtxDestroy(own) == 709
    assert cuda.code.cuCtxSetCurrent(0x1234) == 201


def test_the_primary_context_is_counted(cuda: Driver) -> None:
    flags, active = ctypes.c_uint(), ctypes.c_int()

    def state() -> int:
        cuda.cuDevicePrimaryCtxGetState(1, ctypes.byref(flags), ctypes.byref(active))
        return active.value

    assert state() == 0
    first = cuda.get("cuDevicePrimaryCtxRetain", 1)
    assert cuda.get("cuDevicePrimaryCtxRetain", 1) == first
    assert state() == 1
    assert cuda.code.cuCtxDestroy(first) == 201
    cuda.cuDevicePrimaryCtxRelease(1)
    assert state() == 1
    cuda.cuDevicePrimaryCtxRelease(1)
    assert state() == 0
    assert cuda.code.cuDevicePrimaryCtxRelease(1) == 201
    assert cuda.code.cuCtxSetCurrent(first) == 709


def test_what_a_context_leaves_is_counted(load_driver: Load) -> None:
    cuda = load_driver()
    cuda.start()
    own = cuda.get("cuCtxCreate", 0, 0)
    cuda.alloc(64)
    cuda.stream()
    cuda.event()
    cuda.module(FILL)
    live = cuda.live()
    assert (live["blocks"], live["nbytes"]) == (1, 64)
    assert (live["streams"], live["events"], live["modules"]) == (1, 1, 1)
    cuda.cuCtxDestroy(own)
    assert cuda.live(zero=False) == {"contexts": 1, "abandoned": 4}
    cuda.stop()
    assert cuda.live(zero=False) == {"abandoned": 4}


def test_limits(cuda: Driver) -> None:
    assert cuda.get("cuCtxGetLimit", 0) == 1024
    cuda.cuCtxSetLimit(0, 4096)
    assert cuda.get("cuCtxGetLimit", 0) == 4096
    assert cuda.code.cuCtxSetLimit(77, 1) == 215


# -- names


def test_functions_by_name_and_version(cuda: Driver) -> None:
    def find(name: str, version: int) -> tuple[int, int]:
        out, status = ctypes.c_uint64(), ctypes.c_int(9)
        cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(out), version, 0, ctypes.byref(status))
        return out.value, status.value

    def address(symbol: str) -> int:
        return ctypes.cast(getattr(cuda.library, symbol), ctypes.c_void_p).value or 0

    assert find("cuMemAlloc", 12000) == (address("cuMemAlloc_v2"), 0)
    assert find("cuStreamQuery", 12000) == (address("cuStreamQuery"), 0)
    assert find("cuCtxCreate", 12000) == (address("cuCtxCreate_v3"), 0)
    assert find("cuCtxCreate", 13000) == (address("cuCtxCreate_v4"), 0)
    assert find("cuEventElapsedTime", 12000) == (address("cuEventElapsedTime"), 0)
    assert find("cuEventElapsedTime", 12080) == (address("cuEventElapsedTime_v2"), 0)
    assert find("cuNothing", 12000) == (0, 1)
    assert find("cuCtxCreate", 1000) == (0, 2)
    out = ctypes.c_uint64()
    assert cuda.code.cuGetProcAddress_v2(b"cuNothing", ctypes.byref(out), 12000, 0, None) == 500
    assert cuda.code.cuGetExportTable(ctypes.byref(out), None) == 500


def test_codes_have_names(cuda: Driver) -> None:
    def text(function: str, code: int) -> bytes | None:
        out = ctypes.c_char_p()
        known = getattr(cuda.code, function)(code, ctypes.byref(out)) == 0
        assert known == (out.value is not None)
        return out.value

    assert text("cuGetErrorName", 700) == b"CUDA_ERROR_ILLEGAL_ADDRESS"
    assert text("cuGetErrorString", 2) == b"out of memory"
    assert text("cuGetErrorName", 12345) is None

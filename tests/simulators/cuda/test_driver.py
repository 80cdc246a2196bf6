"""Coming up, devices, contexts, names of functions and codes."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from driver_calls import NOT_INITIALIZED, Driver

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


def test_no_device(load_driver: Load) -> None:
    assert load_driver(devices=0).code.cuInit(0) == 100


# -- contexts


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


# -- names

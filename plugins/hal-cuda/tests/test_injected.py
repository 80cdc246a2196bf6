"""Each driver call of a long program fails once: an exception of ours names it, nothing leaks, and
the program then runs again."""

from __future__ import annotations

import gc
import inspect
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from everything import everything
from simulator import Simulator

import hal_core as hal
from hal_core.streams import calls as shared
from hal_cuda import calls, driver

UNKNOWN, OUT_OF_MEMORY = 999, 2


class Failure(NamedTuple):
    """The exceptions and losses that a failed call may cause."""

    operations: str  # the first words of those that may raise
    kinds: tuple[type[hal.HalError], ...] = (hal.HalError,)
    lost: str = ""  # kind of the object that only this call could have freed
    passes: int = 0  # number of calls whose failure has a fallback and raises nothing


_COPYING = "copyin copyout copy_from"
_NONE_SERVES = hal.CompilerUnavailable  # compile: no compiler can serve
_NO_MEMORY = (hal.OutOfMemory,)
_IN_QUEUE = (hal.HalError, hal.DeviceFault)  # as what fails in a queue is raised at its waits

EXPECTED = {
    "cuInit": Failure("enumerate", (hal.DeviceUnavailable,)),
    "cuDriverGetVersion": Failure("enumerate compile", (hal.DeviceUnavailable, _NONE_SERVES)),
    "cuDeviceGet": Failure("enumerate"),
    "cuDeviceGetAttribute": Failure("enumerate"),
    "cuDeviceGetCount": Failure("enumerate"),
    "cuDeviceGetName": Failure("enumerate"),
    "cuDeviceTotalMem": Failure("enumerate"),
    "cuDevicePrimaryCtxRetain": Failure("open"),
    "cuDevicePrimaryCtxRelease": Failure("close"),
    # Of the turns that pass one is the test's own, two are for the text of an OutOfMemory.
    "cuCtxSetCurrent": Failure(
        "open queue allocate compile load wait launch unload external_ptr wrap free close "
        f"{_COPYING}",
        (*_IN_QUEUE, _NONE_SERVES),
        passes=3,
    ),
    "cuCtxGetCurrent": Failure("wait", passes=5),  # memory is freed all the same
    "cuDeviceCanAccessPeer": Failure("copy_from"),
    "cuMemPoolSetAccess": Failure("", passes=1),  # the driver copies through the host
    "cuMemGetInfo": Failure("", passes=2),  # only for the text of an OutOfMemory
    "cuMemAlloc": Failure("allocate"),
    "cuMemAllocFromPoolAsync": Failure("allocate"),
    "cuMemPoolCreate": Failure("allocate"),
    "cuMemPoolSetAttribute": Failure("allocate"),
    "cuMemPoolTrimTo": Failure("allocate free close"),
    "cuMemPoolDestroy": Failure("close", lost="pools"),
    "cuCtxSynchronize": Failure("free", lost="blocks"),
    "cuMemFree": Failure("free", lost="blocks"),
    "cuMemFreeAsync": Failure("free", lost="blocks"),
    "cuMemHostAlloc": Failure("allocate copyin"),
    "cuMemFreeHost": Failure("free close", lost="host_blocks"),
    "cuMemcpyHtoDAsync": Failure("copyin"),
    "cuMemcpyDtoHAsync": Failure("copyout"),
    "cuMemcpyAsync": Failure("copy_from"),
    "cuMemcpyPeerAsync": Failure("copy_from"),
    "cuMemsetD8Async": Failure("fill"),
    "cuMemsetD16Async": Failure("fill"),
    "cuMemsetD32Async": Failure("wait fill", _IN_QUEUE),
    "cuPointerGetAttribute": Failure("external_ptr"),
    "cuMemGetAddressRange": Failure("wrap"),
    "cuStreamCreate": Failure("open queue"),
    "cuStreamDestroy": Failure("close", lost="streams"),
    "cuStreamSynchronize": Failure("copyout wait free wrap allocate close"),
    "cuStreamQuery": Failure("wait"),
    "cuStreamWaitEvent": Failure("wait copy_from", _IN_QUEUE),
    "cuEventCreate": Failure("wait copyin copy_from", _IN_QUEUE),
    "cuEventDestroy": Failure("wait copy_from close", lost="events"),
    "cuEventRecord": Failure(f"wait {_COPYING}", _IN_QUEUE),
    "cuEventQuery": Failure("wait", (hal.DeviceFault,)),
    "cuEventSynchronize": Failure("wait copyin copyout"),
    "cuEventElapsedTime": Failure("wait"),
    "cuModuleLoadDataEx": Failure("compile load"),
    "cuModuleUnload": Failure("compile unload", lost="modules"),
    "cuModuleGetFunction": Failure("load"),
    "cuFuncGetAttribute": Failure("load"),
    "cuFuncSetAttribute": Failure("launch"),
    "cuLaunchKernel": Failure("launch"),
}

NO_MEMORY = {
    "cuDevicePrimaryCtxRetain": Failure("open", _NO_MEMORY),
    "cuStreamCreate": Failure("open queue", _NO_MEMORY),
    "cuEventCreate": Failure("wait copyin copy_from", (*_NO_MEMORY, hal.DeviceFault)),
    "cuModuleLoadDataEx": Failure("compile load", _NO_MEMORY),
    "cuLaunchKernel": Failure("launch", _NO_MEMORY),
    "cuMemHostAlloc": Failure("copyin", _NO_MEMORY, passes=1),
    "cuMemAlloc": Failure("", passes=1),  # the cache is emptied, and there is some
    "cuMemPoolCreate": Failure("allocate", _NO_MEMORY),
    "cuMemAllocFromPoolAsync": Failure("", passes=7),
}


@pytest.fixture
def watched(
    device: hal.Compiled, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Simulator]:
    """Close all devices, but retain their contexts: destroying one would hide a leak."""
    device.close()
    if "CUDA:1" in hal.Device._devices:
        hal.Device["CUDA:1"].close()
    monkeypatch.setenv("CUDA_CC", "ptx")  # which asks the driver while it compiles, too
    monkeypatch.setenv("HAL_CCACHE", "0")
    simulator.retain_contexts(2)
    everything(simulator)
    yield simulator
    simulator.clear()
    simulator.release_contexts(2)
    driver.api.cache_clear()
    hal.Device.refresh()


def _one_run(simulator: Simulator, name: str, nth: int) -> hal.HalError | None:
    """Return the error of `everything` without its frames, which keep buffers alive."""
    try:
        everything(simulator)
    except hal.HalError as error:
        error.__context__ = error.__cause__ = None
        return error.with_traceback(None)
    except RuntimeError as error:
        if str(error) != f"{name} gave {UNKNOWN}":  # the test's own call
            raise
    return None


def _close_what_is_open() -> None:
    for name in ("CUDA:1", "CUDA"):
        if name in hal.Device._devices:
            hal.Device[name].close()


def _left(simulator: Simulator) -> dict[str, int]:
    gc.collect()
    live = simulator.live()
    return {name: count for name, count in live.items() if name not in ("abandoned", "nbytes")}


def _check_each_turn(simulator: Simulator, name: str, code: int, expected: Failure) -> None:
    before = simulator.all_calls()
    everything(simulator)
    turns = simulator.calls_since(before).get(name, 0)
    assert turns, f"{name} is not called"
    passed = 0
    clean = _left(simulator)
    for nth in range(1, turns + 1):
        simulator.fail(name, code, nth)
        before = simulator.all_calls()
        error = _one_run(simulator, name, nth)
        reached = simulator.calls_since(before).get(name, 0) >= nth  # how often one polls varies
        simulator.clear()
        _close_what_is_open()
        if error is None:
            passed += reached
        else:
            _check_error(error, name, code, expected)
        if error is not None and name == "cuDevicePrimaryCtxRelease":
            simulator.release_contexts(1, first=int(error.device == "CUDA:1"))
        everything(simulator)
        left = _left(simulator)
        lost = {what: left[what] - clean[what] for what in left if left[what] != clean[what]}
        clean = left
        if error is None or not expected.lost:
            cannot = name == "cuCtxSetCurrent" and error and error.operation in ("free", "close")
            assert cannot or not lost, (name, nth, error)
        else:
            assert lost == {expected.lost: 1}, (name, nth, error)
    assert passed == expected.passes, (name, passed)


def _check_error(error: hal.HalError, name: str, code: int, expected: Failure) -> None:
    assert type(error) in expected.kinds, error
    assert error.operation.split()[0] in expected.operations.split(), (name, error)
    if isinstance(error, hal.DeviceUnavailable):
        assert f"({name} gave {code}, CUDA_ERROR_UNKNOWN)" in str(error), error
        return
    status = "UNKNOWN: unknown error" if code == UNKNOWN else "OUT_OF_MEMORY: out of memory"
    assert f"{name} failed with CUDA_ERROR_{status}" in str(error), error
    assert error.device in ("CUDA", "CUDA:1"), error


@pytest.mark.parametrize("name", EXPECTED)
def test_a_call_that_fails_raises_and_leaks_nothing(watched: Simulator, name: str) -> None:
    _check_each_turn(watched, name, UNKNOWN, EXPECTED[name])


@pytest.mark.parametrize("name", NO_MEMORY)
def test_A4_a_call_that_finds_no_memory_raises_OutOfMemory(watched: Simulator, name: str) -> None:
    _check_each_turn(watched, name, OUT_OF_MEMORY, NO_MEMORY[name])


def test_no_driver_call_is_missing_here(watched: Simulator) -> None:
    """`everything` calls each driver function that the sources name; each fails once above."""
    before = watched.all_calls()
    everything(watched)
    called = set(watched.calls_since(before))
    assert called == set(EXPECTED)
    transport = type(driver.api())
    text = inspect.getsource(shared) + inspect.getsource(calls)
    text += inspect.getsource(sys.modules[transport.__module__])
    named = {f"cu{name}" for name in re.findall(r"(?:\bcu\.cu|[ (]\")([A-Z][a-z]\w+)\b", text)}
    assert len(named) > 30
    # The third is called where PyCUDA has a context.
    assert named - called - {"cuCtxGetDevice"} == {"cuGetErrorName", "cuGetErrorString"}


def test_A4_the_drivers_out_of_memory_says_what_is_free(
    device: hal.Compiled, simulator: Simulator
) -> None:
    for nth in range(1, 5):  # it tries again after a wait, and both once more with no cache
        simulator.fail("cuMemAllocFromPoolAsync", OUT_OF_MEMORY, nth)
    with pytest.raises(hal.OutOfMemory) as caught:
        hal.Buffer(device, 123457, hal.uint8).allocate()
    simulator.clear()
    assert "bytes free of" in str(caught.value.__cause__)

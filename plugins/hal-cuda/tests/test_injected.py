"""Every call of the driver fails once, at each of its turns: an exception of ours that says which,
nothing left behind, and everything works again."""

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
from hal_cuda import calls, driver

UNKNOWN, OUT_OF_MEMORY = 999, 2


class Told(NamedTuple):
    """What is told of a call that fails."""

    operations: str  # in one of these, by their first word
    kinds: tuple[type[hal.HalError], ...] = (hal.HalError,)
    lost: str = ""  # what this call alone could have given back, as the driver counts it
    passes: int = 0  # at how many turns there is another way, and nothing to tell


_COPYING = "copyin copyout copy_from"
_NONE_SERVES = hal.CompilerUnavailable  # compile: no compiler can serve
_NO_MEMORY = (hal.OutOfMemory,)

TOLD = {
    "cuInit": Told("enumerate", (hal.DeviceUnavailable,)),
    "cuDriverGetVersion": Told("enumerate compile", (hal.DeviceUnavailable, _NONE_SERVES)),
    "cuDeviceGet": Told("enumerate"),
    "cuDeviceGetAttribute": Told("enumerate"),
    "cuDeviceGetCount": Told("enumerate"),
    "cuDeviceGetName": Told("enumerate"),
    "cuDeviceTotalMem": Told("enumerate"),
    "cuDevicePrimaryCtxRetain": Told("open"),
    "cuDevicePrimaryCtxRelease": Told("close"),
    # Of the turns that pass one is the test's own, two are for the text of an OutOfMemory.
    "cuCtxSetCurrent": Told(
        f"open allocate compile load wait launch unload external_ptr wrap free close {_COPYING}",
        (hal.HalError, _NONE_SERVES),
        passes=3,
    ),
    "cuCtxGetCurrent": Told("wait", passes=5),  # memory is freed all the same
    "cuDeviceCanAccessPeer": Told("copy_from"),
    "cuCtxEnablePeerAccess": Told("", passes=1),  # the driver copies through the host
    "cuMemGetInfo": Told("", passes=2),  # only for the text of an OutOfMemory
    "cuMemAlloc": Told("allocate"),
    "cuMemAllocAsync": Told("allocate"),
    "cuMemFree": Told("free", lost="blocks"),
    "cuMemFreeAsync": Told("free", lost="blocks"),
    "cuMemHostAlloc": Told("allocate copyin"),
    "cuMemFreeHost": Told("free close", lost="host_blocks"),
    "cuMemcpyHtoDAsync": Told("copyin"),
    "cuMemcpyDtoHAsync": Told("copyout"),
    "cuMemcpyDtoDAsync": Told("copy_from"),
    "cuMemcpyPeerAsync": Told("copy_from"),
    "cuMemsetD8Async": Told("fill"),
    "cuMemsetD16Async": Told("fill"),
    "cuMemsetD32Async": Told("fill"),
    "cuPointerGetAttribute": Told("external_ptr"),
    "cuMemGetAddressRange": Told("wrap"),
    "cuStreamCreate": Told("open"),
    "cuStreamDestroy": Told("close", lost="streams"),
    "cuStreamSynchronize": Told("copyout wait free wrap close"),
    "cuStreamQuery": Told("wait"),
    "cuStreamWaitEvent": Told("copy_from"),
    "cuEventCreate": Told("wait copyin copy_from"),
    "cuEventDestroy": Told("wait copy_from close", lost="events"),
    "cuEventRecord": Told(f"wait {_COPYING}"),
    "cuEventSynchronize": Told("wait copyin copyout"),
    "cuEventElapsedTime": Told("wait"),
    "cuModuleLoadDataEx": Told("compile load"),
    "cuModuleUnload": Told("compile unload", lost="modules"),
    "cuModuleGetFunction": Told("load"),
    "cuFuncGetAttribute": Told("load"),
    "cuFuncSetAttribute": Told("launch"),
    "cuLaunchKernel": Told("launch"),
}

NO_MEMORY = {
    "cuDevicePrimaryCtxRetain": Told("open", _NO_MEMORY),
    "cuStreamCreate": Told("open", _NO_MEMORY),
    "cuEventCreate": Told("wait copyin copy_from", _NO_MEMORY),
    "cuModuleLoadDataEx": Told("compile load", _NO_MEMORY),
    "cuLaunchKernel": Told("launch", _NO_MEMORY),
    "cuMemHostAlloc": Told("copyin", _NO_MEMORY, passes=1),
    "cuMemAlloc": Told("", passes=1),  # the cache is emptied, and there is some
    "cuMemAllocAsync": Told("", passes=5),
}


@pytest.fixture
def watched(
    device: hal.Compiled, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Simulator]:
    """No device is open; its context outlives it, so that it hides nothing that was left there."""
    device.close()
    if "CUDA:1" in hal.Device._opened:
        hal.Device["CUDA:1"].close()
    monkeypatch.setenv("CUDA_CC", "ptx")  # which asks the driver while it compiles, too
    monkeypatch.setenv("HAL_CCACHE", "0")
    simulator.keep_contexts(2)
    everything(simulator)
    yield simulator
    simulator.clear()
    simulator.let_contexts_go(2)
    driver.api.cache_clear()
    hal.Device.refresh()


def _one_run(simulator: Simulator, name: str, nth: int) -> hal.HalError | None:
    """What `everything` raises, without its frames, which would keep what they hold."""
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
        if name in hal.Device._opened:
            hal.Device[name].close()


def _left(simulator: Simulator) -> dict[str, int]:
    gc.collect()
    live = simulator.live()
    return {name: count for name, count in live.items() if name not in ("abandoned", "nbytes")}


def _check_each_turn(simulator: Simulator, name: str, code: int, told: Told) -> None:
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
            _check_told(error, name, code, told)
        if error is not None and name == "cuDevicePrimaryCtxRelease":
            simulator.let_contexts_go(1, first=int(error.device == "CUDA:1"))
        everything(simulator)
        left = _left(simulator)
        lost = {what: left[what] - clean[what] for what in left if left[what] != clean[what]}
        clean = left
        if error is None or not told.lost:
            cannot = name == "cuCtxSetCurrent" and error and error.operation in ("free", "close")
            assert cannot or not lost, (name, nth, error)
        else:
            assert lost == {told.lost: 1}, (name, nth, error)
    assert passed == told.passes, (name, passed)


def _check_told(error: hal.HalError, name: str, code: int, told: Told) -> None:
    assert type(error) in told.kinds, error
    assert error.operation.split()[0] in told.operations.split(), (name, error)
    if isinstance(error, hal.DeviceUnavailable):
        assert f"({name} gave {code}, CUDA_ERROR_UNKNOWN)" in str(error), error
        return
    status = "UNKNOWN: unknown error" if code == UNKNOWN else "OUT_OF_MEMORY: out of memory"
    assert f"{name} failed with CUDA_ERROR_{status}" in str(error), error
    assert error.device in ("CUDA", "CUDA:1"), error


@pytest.mark.parametrize("name", TOLD)
def test_a_call_that_fails_is_told_and_leaves_nothing(watched: Simulator, name: str) -> None:
    _check_each_turn(watched, name, UNKNOWN, TOLD[name])


@pytest.mark.parametrize("name", NO_MEMORY)
def test_A4_a_call_that_finds_no_memory_is_told(watched: Simulator, name: str) -> None:
    _check_each_turn(watched, name, OUT_OF_MEMORY, NO_MEMORY[name])


def test_no_call_of_the_driver_is_forgotten(watched: Simulator) -> None:
    """`everything` calls each driver function that the sources name; each fails once above."""
    before = watched.all_calls()
    everything(watched)
    called = set(watched.calls_since(before))
    assert called == set(TOLD)
    transport = type(driver.api())
    text = inspect.getsource(calls) + inspect.getsource(sys.modules[transport.__module__])
    named = set(re.findall(r"(?:\bcu\.|\")(cu[A-Z]\w+?)(?:_v\d)?\b", text))
    assert len(named) > 30
    # The third is called where PyCUDA has a context.
    assert named - called - {"cuCtxGetDevice"} == {"cuGetErrorName", "cuGetErrorString"}


def test_A4_the_drivers_out_of_memory_says_what_is_free(
    device: hal.Compiled, simulator: Simulator
) -> None:
    for nth in (1, 2):  # the allocator tries again when its cache is empty
        simulator.fail("cuMemAllocAsync", OUT_OF_MEMORY, nth)
    with pytest.raises(hal.OutOfMemory) as caught:
        hal.Buffer(device, 123457, hal.uint8).allocate()
    simulator.clear()
    assert "bytes free of" in str(caught.value.__cause__)

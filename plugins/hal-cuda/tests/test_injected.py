"""Every call of the driver fails once: an exception of ours, nothing leaked, usable afterwards."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from simulator import Simulator

import hal_core as hal

UNKNOWN, OUT_OF_MEMORY = 999, 2


@hal.kernel
def add_one(y: hal.Ptr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + 1


def _everything() -> None:
    """All that the backend asks of a driver, from opening to closing."""
    with hal.Device["CUDA"] as device:
        device.compile(add_one)
        y = hal.Buffer(device, 1000, hal.int32, hal.BufferSpec(zero=True)).allocate()
        program = device.compile(add_one)
        program(y, vals=(1000,), threads=1000)
        program(y, vals=(1000,), threads=1000, wait=True)
        pinned = hal.Buffer(device, 1000, hal.int32, hal.BufferSpec(host=True, nolru=True))
        pinned.allocate().copy_from(y)
        assert pinned.numpy().tolist() == [2] * 1000
        large = hal.Buffer.from_numpy(np.arange(1 << 19, dtype="i4"), device)
        large.fill(7)
        assert large.numpy()[-1] == 7
        device.synchronize(timeout=10)
        with hal.Device["CUDA:1"] as other:
            there = hal.Buffer(other, 1000, hal.int32).copy_from(y)
            assert there.numpy().tolist() == [2] * 1000
            there.deallocate()
        for made in (y, pinned, large):
            made.deallocate()


def _calls(simulator: Simulator) -> list[str]:
    before = simulator.all_calls()
    _everything()
    return sorted(simulator.calls_since(before))


def test_every_call_that_fails_is_told_and_leaves_nothing(
    device: hal.Compiled, simulator: Simulator
) -> None:
    device.close()
    _everything()
    gc.collect()
    clean = simulator.live()
    _everything()
    gc.collect()
    assert simulator.live() == clean, "what a device held when it was closed"
    del clean["abandoned"]  # buffers of a run that failed outlive their device
    # Where the release itself fails, the context stays: there is nothing left to try.
    names = [name for name in _calls(simulator) if name != "cuDevicePrimaryCtxRelease"]
    assert len(names) > 15, names
    for name in names:
        code = OUT_OF_MEMORY if "Alloc" in name else UNKNOWN
        simulator.fail(name, code)
        hal.Device.refresh()
        try:
            _everything()
        except hal.HalError as error:
            kinds = hal.OutOfMemory, hal.CompileError  # the latter is all that PyCUDA tells
            told = isinstance(error, kinds) or "CUDA_ERROR_UNKNOWN" in str(error)
            assert told, (name, error)
        for open_name in ("CUDA", "CUDA:1"):
            if open_name in hal.Device._opened:
                hal.Device[open_name].close()
        simulator.clear()
        gc.collect()
        hal.Device.refresh()
        _everything()
        gc.collect()
        live = simulator.live()
        del live["abandoned"]
        assert live == clean, name


def test_A4_the_drivers_out_of_memory_says_what_is_free(
    device: hal.Compiled, simulator: Simulator
) -> None:
    for name in ("cuMemAllocAsync", "cuMemAlloc"):
        for nth in range(1, 5):  # the allocator tries twice, and PyCUDA twice each time
            simulator.fail(name, OUT_OF_MEMORY, nth)
    with pytest.raises(hal.OutOfMemory) as caught:
        hal.Buffer(device, 123457, hal.uint8).allocate()
    simulator.clear()
    assert "bytes free of" in str(caught.value.__cause__)

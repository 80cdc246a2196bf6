"""Queues as streams of the runtime: order and calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from any_order import *  # noqa: F403
from any_order import N, twofold
from runtime_control import Runtime

import hal_core as hal


@pytest.fixture
def shuffle(device: hal.Compiled, runtime: Runtime) -> Iterator[Callable[[int], None]]:
    """Return what sets the seed of the streams' order."""
    yield runtime.shuffle
    runtime.shuffle(0)
    device.synchronize()


def test_a_wait_takes_one_call_and_no_host(device: hal.Compiled, runtime: Runtime) -> None:
    program, queues = device.compile(twofold), [device.queue(), device.queue()]
    x, y = hal.zeros(N, hal.int32, device), hal.zeros(N, hal.int32, device)
    for queue in queues:
        program(y, x, vals=(N,), threads=N, queue=queue)
        assert queue.synchronize(20)
    runtime.shuffle(1)  # nothing is done while nobody asks
    try:
        late = x.fill(2, queue=queues[0])
        before = runtime.all_calls()
        queues[1].wait(late)
        program(y, x, vals=(N,), threads=N, queue=queues[1])
        assert runtime.calls_since(before) == {
            "hipEventQuery": 1, "hipThreadExchangeStreamCaptureMode": 2,
            "hipStreamWaitEvent": 1, "hipModuleLaunchKernel": 1,
        }  # fmt: skip
        assert queues[1].synchronize(20)
    finally:
        runtime.shuffle(0)
    assert y.numpy().tolist() == [4] * N


def test_a_stream_is_on_its_own_GPU_whichever_is_current(
    device: hal.Compiled, runtime: Runtime
) -> None:
    """A thread knows its GPU from an earlier time; another library has changed it since."""
    index = ctypes.c_int(-1)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(device.own, "test").result()
        device.close()
        thread.submit(runtime.set_device, 1).result()
        opened = thread.submit(lambda: hal.Device["HIP"]).result()
    runtime.library.hipStreamGetDevice(ctypes.c_void_p(opened.stream), ctypes.byref(index))
    assert index.value == 0

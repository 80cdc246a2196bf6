"""Launches: the number of driver calls, refused arguments, faults."""

import sys
import threading

import numpy as np
import pytest
from kernel_files import saxpy

import hal_core as hal

pytestmark = pytest.mark.results


def _pair(device, size=1000):
    x = hal.Buffer.from_numpy(np.arange(size, dtype="f4"), device)
    return hal.Buffer.from_numpy(np.ones(size, dtype="f4"), device), x


def test_a_launch_is_one_call_of_the_driver(device, simulator):
    program, (y, x) = device.compile(saxpy), _pair(device)
    program(y, x, vals=(2.0, 1000), threads=1000)
    device.synchronize()
    before = simulator.all_calls()
    for _ in range(10):
        program(y, x, vals=(2.0, 1000), threads=1000)
    assert simulator.calls_since(before) == {"cuLaunchKernel": 10}


def test_a_wait_is_one_call_and_a_poll_three(device, simulator):
    device.synchronize()
    before = simulator.all_calls()
    device.synchronize()
    assert simulator.calls_since(before) == {"cuStreamSynchronize": 1}
    before = simulator.all_calls()
    device.synchronize(timeout=1)
    mode = {"cuThreadExchangeStreamCaptureMode": 2}  # so that it spoils no capture of others
    assert simulator.calls_since(before) == {"cuStreamQuery": 1, **mode}


def test_a_cached_allocation_is_no_call_at_all(device, simulator):
    hal.empty(5000, hal.float32, device).deallocate()
    before = simulator.all_calls()
    for _ in range(10):
        hal.empty(5000, hal.float32, device).deallocate()
    assert simulator.calls_since(before) == {}


def test_zeros_from_the_cache_are_one_call(device, simulator):
    hal.zeros(5000, hal.float32, device).fill(1).deallocate()
    before = simulator.all_calls()
    made = hal.zeros(5000, hal.float32, device)
    assert simulator.calls_since(before) == {"cuMemsetD8Async": 1}
    assert set(made.numpy().tolist()) == {0}


def test_a_small_copy_is_one_call_and_a_wait(device, simulator):
    made = hal.Buffer.from_numpy(np.arange(1000, dtype="i4"), device)
    before = simulator.all_calls()
    made.copyin(bytes(4000))
    assert simulator.calls_since(before) == {"cuMemcpyHtoDAsync": 1}
    before = simulator.all_calls()
    made.copyout(bytearray(4000))
    assert simulator.calls_since(before) == {"cuMemcpyDtoHAsync": 1, "cuStreamSynchronize": 1}


def test_each_thread_makes_the_context_current_once(device, simulator):
    """No launch asks; a thread's first one is refused, and repeated in the context."""
    program, (y, x) = device.compile(saxpy), _pair(device)
    program(y, x, vals=(0.0, 1000), threads=1000)
    before = simulator.all_calls()

    def work():
        for _ in range(5):
            program(y, x, vals=(0.0, 1000), threads=1000)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    calls = {"cuCtxGetCurrent": 1, "cuCtxSetCurrent": 1, "cuLaunchKernel": 6}
    assert simulator.calls_since(before) == calls
    assert set(y.numpy().tolist()) == {1}


def test_a_launch_in_the_middle_of_a_launch_leaves_its_arguments_alone(device):
    """Finalizers and signal handlers launch in the middle of another launch."""
    program, (y, x), (other, _) = device.compile(saxpy), _pair(device), _pair(device)
    program(y, x, vals=(0.0, 1000), threads=1000)
    came = []

    def come_in(_frame, event, called):
        if event == "c_return" and getattr(called, "__name__", "") == "pack_into":
            sys.setprofile(None)
            came.append(called)
            program(other, x, vals=(10.0, 500), threads=1000)

    sys.setprofile(come_in)
    try:
        program(y, x, vals=(2.0, 1000), threads=1000)
    finally:
        sys.setprofile(None)
    assert len(came) == 1
    assert y.numpy().tolist() == [1 + 2 * k for k in range(1000)]
    assert other.numpy().tolist() == [1 + 10 * k if k < 500 else 1 for k in range(1000)]


def test_P5_much_dynamic_shared_memory_is_asked_for(device):
    text = """
    extern "C" __global__ void hold(int *y) {
        extern __shared__ int tile[];
        tile[threadIdx.x * 500] = threadIdx.x;
        __syncthreads();
        y[threadIdx.x] = tile[(31 - threadIdx.x) * 500];
    }
    """
    pytest.importorskip("cuda.pathfinder")
    try:
        program = device.compile(hal.Source("hold", text, "y: int32*", language="cuda"))
    except hal.CompilerUnavailable as error:
        pytest.skip(str(error))
    y = hal.Buffer(device, 32, hal.int32).allocate()
    program(y, grid=1, block=32, shared=64_000)
    assert y.numpy().tolist() == list(range(31, -1, -1))


def test_P5_what_one_geometry_was_allowed_another_does_not_take_away(device):
    program = device.compile(_holding(device, static=0))
    y = hal.Buffer(device, 32, hal.int32).allocate()
    for shared in (96_000, 60_000, 96_000, 1_000, 60_000, 96_000):
        program(y, grid=1, block=32, shared=shared)
        assert y.numpy().tolist() == list(range(31, -1, -1)), shared


def test_P5_static_and_dynamic_shared_memory_count_together(device):
    program = device.compile(_holding(device, static=10_000))
    assert program.info.shared_nbytes >= 40_000
    y = hal.Buffer(device, 32, hal.int32).allocate()
    program(y, grid=1, block=32, shared=20_000)
    assert y.numpy().tolist() == list(range(31, -1, -1))


def _holding(device, static):
    """Return a kernel with `static` integers of shared memory besides the dynamic kind."""
    pytest.importorskip("cuda.pathfinder")
    text = f"""
    extern "C" __global__ void hold(int *y) {{
        extern __shared__ int tile[];
        volatile __shared__ int own[{static or 1}];
        tile[threadIdx.x] = threadIdx.x;
        if (threadIdx.x == 0) own[{static or 1} - 1] = 0;
        __syncthreads();
        y[threadIdx.x] = tile[31 - threadIdx.x] + own[{static or 1} - 1];
    }}
    """
    return hal.Source("hold", text, "y: int32*", language="cuda")

"""Launches: the number of driver calls, threads, large shared memory."""

import sys

import numpy as np
import pytest
from few_calls import *  # noqa: F403
from in_threads import results
from kernel_files import saxpy

import hal_core as hal

pytestmark = pytest.mark.results


def _pair(device, size=1000):
    x = hal.Buffer.from_numpy(np.arange(size, dtype="f4"), device)
    return hal.Buffer.from_numpy(np.ones(size, dtype="f4"), device), x


def test_each_thread_makes_the_context_current_once(device, simulator):
    """No launch asks; a thread's first one is refused, and repeated in the context."""
    program, (y, x) = device.compile(saxpy), _pair(device)
    program(y, x, vals=(0.0, 1000), threads=1000)
    before = simulator.all_calls()
    results(lambda: [program(y, x, vals=(0.0, 1000), threads=1000) for _ in range(5)])
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


@pytest.mark.parametrize("pair", ["nvrtc", "ptx"])
@pytest.mark.parametrize("nbytes", [49_152, 49_168, None])
def test_P5_arrays_of_more_than_48_KiB_are_dynamic(device, pair, nbytes, monkeypatch):
    """The driver refused them: static shared memory ends there."""
    monkeypatch.setenv("CUDA_CC", pair)
    nbytes = nbytes or device.info.limits.shared_nbytes
    last = (nbytes - 32) // 4 - 1  # `few` takes 20 bytes, rounded up to 32

    @hal.kernel(block=32)
    def turn(hal_shared: hal.Ptr[hal.int32]):
        i = hal.thread_idx(0)
        few = hal.shared(hal.int32, 5)
        many = hal.shared(hal.int32, last + 1)
        many[last - i], few[i % 5] = i, 5
        hal.atomic_add(many, last - i, 1)
        hal.barrier()
        hal_shared[i] = many[last - 31 + i] + few[4]

    program, y = device.compile(turn), hal.zeros(32, hal.int32, device)
    assert program.info.shared_nbytes == nbytes
    with device.capture() as graph:
        program(y, grid=1)
    for launch in (lambda: program(y, grid=1), graph.replay):
        y.fill(0)
        launch()
        assert y.numpy().tolist() == [37 - k for k in range(32)]
    with pytest.raises(hal.InvalidArgument, match="beside the kernel's own"):
        program(y, grid=1, shared=device.info.limits.shared_nbytes - nbytes + 1)


@pytest.mark.parametrize(
    ("static", "sizes"), [(0, (96_000, 60_000, 96_000, 1_000, 60_000, 96_000)), (10_000, (20_000,))]
)
def test_P5_much_shared_memory_is_asked_for_and_stays_allowed(device, static, sizes):
    """Static and dynamic memory count together."""
    program = device.compile(_holding(device, static))
    assert program.info.shared_nbytes >= 4 * static
    y = hal.Buffer(device, 32, hal.int32).allocate()
    for shared in sizes:
        program(y, grid=1, block=32, shared=shared)
        assert y.numpy().tolist() == list(range(31, -1, -1)), shared


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

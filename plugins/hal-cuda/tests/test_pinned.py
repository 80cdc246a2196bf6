"""Pinned memory, which the host and kernels share: arrays over it, and its lifetime."""

import gc

import numpy as np
import pytest

import hal_core as hal
from hal_core.buffer import capsule
from hal_testing.conformance.kernels import add_one

ILLEGAL_ADDRESS = 700
SLOW = 0.15  # seconds of a kernel that host code must not overtake
PINNED = hal.BufferSpec(host=True)
SELDOM = hal.BufferSpec(host=True, nolru=True)  # freed at once


@pytest.fixture
def pinned(device):
    return hal.Buffer(device, 64, hal.int32, PINNED).allocate().copyin(np.arange(64, dtype="i4"))


class Theirs:
    """An array of another library in pinned memory; its capsule says host memory, as PyTorch's."""

    def __init__(self, array, place=(3, 0)):
        self.array, self.place, self.streams = array, place, []

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, stream=None, **options):
        self.streams.append(stream)
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("way", [np.asarray, np.from_dlpack])
def test_an_array_shows_what_was_queued_before_it(device, pinned, simulator, way):
    program = device.compile(add_one)
    program(pinned, vals=(64,), threads=64)
    device.synchronize()
    simulator.delay("cuLaunchKernel", SLOW)
    program(pinned, vals=(64,), threads=64)
    assert way(pinned).tolist() == list(range(2, 66))


def test_bfloat16_goes_to_the_host_too(device):
    made = hal.Buffer(device, 8, hal.bfloat16, PINNED).allocate().fill(1)
    for place in (None, (1, 0)):
        taken = capsule.take(made.__dlpack__(dl_device=place))
        assert (taken.pointer, taken.dtype) == (made._opaque_for("test"), hal.bfloat16)


def test_another_GPU_computes_on_it(pinned, other):
    taken = hal.Buffer.from_dlpack(pinned, other, copy=False)
    other.compile(add_one)(taken, vals=(64,), threads=64)
    other.synchronize()
    assert np.asarray(pinned).tolist() == list(range(1, 65))
    copied = hal.Buffer.from_dlpack(pinned, other, copy=True)
    np.asarray(pinned)[:] = 0
    assert copied.numpy().tolist() == list(range(1, 65))


def test_pinned_arrays_of_others_are_shared_and_asked_without_a_stream(device, pinned):
    theirs = Theirs(np.asarray(pinned))
    taken = hal.Buffer.from_dlpack(theirs, device)
    device.compile(add_one)(taken, vals=(64,), threads=64)
    device.synchronize()
    assert theirs.array[0] == 1 and theirs.streams == [None]
    with pytest.raises(hal.NotShareable, match="not visible to the host"):
        np.asarray(taken)  # whose memory that is, only its owner knows


def test_what_is_not_dense_is_copied_or_refused(device, pinned):
    theirs = Theirs(np.asarray(pinned)[::2])
    assert hal.Buffer.from_dlpack(theirs, device).numpy().tolist() == list(range(0, 64, 2))
    with pytest.raises(hal.NotShareable, match="cannot share: the array is not C-contiguous"):
        hal.Buffer.from_dlpack(theirs, device, copy=False)


def test_memory_that_is_not_pinned_is_refused_though_it_says_so(device):
    with pytest.raises(hal.InvalidArgument, match=r"external_ptr.*no memory that the CUDA driver"):
        hal.Buffer.from_dlpack(Theirs(np.zeros(64, "i4")), device)


@pytest.mark.parametrize("way", [np.asarray, np.from_dlpack])
def test_it_outlives_its_buffer_and_its_device(device, simulator, way):
    device.close()
    gc.collect()
    clean = simulator.live()
    with hal.Device["CUDA"] as opened:
        made = hal.Buffer(opened, 1000, hal.int32, SELDOM).allocate().fill(7)
        array = way(made[500:])
        del made
        assert simulator.live()["host_blocks"] == clean["host_blocks"] + 1
    assert set(array.tolist()) == {7}
    del array
    gc.collect()
    assert simulator.live() == clean


def test_it_outlives_a_context_that_was_lost(device, simulator):
    """An array over memory that the driver has taken back would end the process."""
    device.close()
    gc.collect()
    clean = simulator.live()
    with hal.Device["CUDA"] as opened:
        made = [hal.Buffer(opened, 64, hal.int32, SELDOM).allocate().fill(7) for _ in range(2)]
        far = hal.zeros(64, hal.int32, opened)
        arrays = [np.asarray(one) for one in made]
        del made
        simulator.fail("run", ILLEGAL_ADDRESS)
        opened.compile(add_one)(far, vals=(64,), threads=64)
        with pytest.raises(hal.DeviceFault):
            opened.close()
    assert simulator.live()["host_blocks"] == clean["host_blocks"] + 2
    with pytest.raises(hal.DeviceFault, match="context is lost"):
        hal.zeros(64, hal.int32, hal.Device["CUDA"])
    for _ in range(2):
        assert simulator.live()["host_blocks"] == clean["host_blocks"] + 2
        assert set(arrays.pop().tolist()) == {7}
        gc.collect()
    simulator.clear()
    assert hal.zeros(64, hal.int32, hal.Device["CUDA"]).numpy().tolist() == [0] * 64

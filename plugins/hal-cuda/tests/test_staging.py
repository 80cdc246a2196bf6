"""Large copies to a busy device that fail half-way, or are interrupted by those of the thread."""

import numpy as np
import pytest

import hal_core as hal

UNKNOWN = 999
NBYTES = 5 << 20  # more than one half


@pytest.fixture
def pair(device, monkeypatch):
    """Return a buffer of ones and one of twos; the staging memory exists, and is always used."""
    monkeypatch.setattr(type(device.api), "is_done", lambda *_: False)
    made = [hal.Buffer(device, NBYTES, hal.uint8).copyin(bytes([k]) * NBYTES) for k in (1, 2)]
    return made[0], made[1]


def _once_in_the_middle(monkeypatch, device, call, work):
    """Do `work` on the calling thread after the next such call, as a finalizer would."""
    real = getattr(device.api, call)

    def come_in(*arguments):
        real(*arguments)
        monkeypatch.undo()
        work()

    monkeypatch.setattr(device.api, call, come_in)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_copy_that_failed_half_way_does_not_disturb_the_next(device, simulator, pair, nth):
    """The failed copy's queued work still reads pinned memory when the error is raised."""
    device.synchronize()
    simulator.delay("cuMemcpyHtoDAsync", 0.2)
    simulator.fail("cuEventRecord", UNKNOWN, nth)
    with pytest.raises(hal.HalError, match="cuEventRecord"):
        pair[0].copyin(bytes([5]) * NBYTES)
    pair[1].copyin(bytes([7]) * NBYTES)
    simulator.clear()
    assert np.isin(pair[0].numpy(), (1, 5)).all() and (pair[1].numpy() == 7).all()


@pytest.mark.parametrize("call", ["wait_event", "copy_in", "record"])
def test_a_copy_in_the_middle_of_a_copy_in(device, pair, monkeypatch, call):
    back = bytearray(NBYTES)

    def inner():
        pair[1].copyin(bytes([9]) * NBYTES).copyout(back)

    _once_in_the_middle(monkeypatch, device, call, inner)
    data = np.random.default_rng(3).bytes(NBYTES)
    pair[0].copyin(data)
    assert back == bytes([9]) * NBYTES and pair[0].numpy().tobytes() == data
    assert (pair[1].numpy() == 9).all()


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("source", [bytes, bytearray])
def test_B5_a_large_copy_leaves_its_source_to_the_caller(device, simulator, is_busy, source):
    """A driver may read pageable memory late."""
    y = hal.empty(NBYTES, hal.uint8, device).fill(0)
    device.synchronize()
    simulator.read_late(True)
    if is_busy:
        simulator.delay("cuMemsetD8Async", 0.6)
        y.fill(1)
    data = source(bytes([9]) * NBYTES)
    y.copyin(data)
    assert is_busy != device.api.is_done(device.stream), "an idle device is waited for"
    if source is bytearray:
        data[:] = bytes(NBYTES)
    del data
    simulator.clear()
    simulator.read_late(False)
    assert (y.numpy() == 9).all()


def test_free_cache_gives_back_pinned_memory_that_nobody_uses(device, simulator, pair):
    queue, data = device.queue(), bytes([3]) * NBYTES
    device.synchronize()
    device.allocator.free_cache()
    before = simulator.live()["host_blocks"]
    done = pair[0].copyin(data, queue=queue)  # through blocks of the device's queues
    pair[1].copyin(data)  # through the halves
    assert done.wait(20) and simulator.live()["host_blocks"] >= before + 3
    device.synchronize()
    device.allocator.free_cache()
    assert simulator.live()["host_blocks"] == before
    simulator.delay("cuMemcpyHtoDAsync", 0.2)
    done = pair[0].copyin(data[:-1] + b"\4", queue=queue)
    device.allocator.free_cache()  # while the copy uses some
    simulator.clear()
    assert done.wait(20) and pair[0].numpy()[-1] == 4 and pair[1].numpy()[-1] == 3

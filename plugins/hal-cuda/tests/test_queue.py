"""Queues as streams of the driver: order, calls, other libraries."""

import pytest
from any_order import *  # noqa: F403
from any_order import N
from captures import *  # noqa: F403

import hal_core as hal
from hal_streams.queue import StreamQueue
from hal_streams.stretch import StreamEvent


def test_a_wait_takes_one_call_and_no_host(device, simulator):
    first, second = device.queue(), device.queue()
    assert first.synchronize(20)
    simulator.shuffle(1)  # nothing is done while nobody asks
    made = hal.empty(N, hal.int32, device).fill(1)
    late = made.fill(2, queue=first)
    before = simulator.all_calls()
    second.wait(late)
    assert simulator.calls_since(before) == {
        "cuEventQuery": 1, "cuThreadExchangeStreamCaptureMode": 2, "cuStreamWaitEvent": 1,
    }  # fmt: skip
    assert isinstance(late, StreamEvent) and late._mark is not None
    assert second.synchronize(20)


class Stream:
    """A stream of another library."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def test_Q6_a_borrowed_stream_is_ordered_with_ours_and_not_destroyed(device, simulator):
    with device.own("test"):
        theirs = device.api.make_stream(independent=True)
    simulator.shuffle(5)
    queue = hal.Queue.wrap(Stream(int(theirs)), device)
    assert isinstance(queue, StreamQueue) and queue.__cuda_stream__() == (0, int(theirs))
    made = hal.empty(N, hal.int32, device)
    event, ours = made.fill(7, queue=queue), device.queue()
    copied = hal.empty(N, hal.int32, device)
    assert copied.copy_from(made, queue=ours.wait(event)).wait(20)
    assert copied.numpy().tolist() == [7] * N
    queue.close()
    assert device.call("test", device.api.is_done, theirs)
    with device.own("test"):
        device.api.destroy_stream(theirs)
    with pytest.raises(hal.InvalidArgument, match="no such queue"):
        hal.Queue.wrap("stream", device)


def test_Q6_exports_come_after_the_work_of_queues(device, simulator):
    with device.own("test"):
        theirs = device.api.make_stream(independent=True)
    try:
        for seed in range(1, 30):
            simulator.shuffle(seed)
            queue, made = device.queue(), hal.zeros(N, hal.int32, device)
            made.fill(seed, queue=queue)
            capsule = made.__dlpack__(stream=int(theirs))
            found = hal.empty(N, hal.int32, device)
            reader = hal.Queue.wrap(int(theirs), device)
            assert found.copy_from(made, queue=reader).wait(20)
            assert found.numpy().tolist() == [seed] * N
            del capsule
    finally:
        with device.own("test"):
            device.api.destroy_stream(theirs)

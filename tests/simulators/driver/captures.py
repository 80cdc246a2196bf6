"""Tests of queues and memory while another library captures a stream of its own in global mode.

A plugin's test_queue.py imports them.
"""

import gc

import numpy as np
import pytest
from any_order import N, expect, twofold

import hal_core as hal
from hal_streams.staging import BLOCK_NBYTES

OUT_OF_MEMORY, UNSUPPORTED = 2, 900


@pytest.fixture
def theirs(device, control):
    """Return a stream of another library."""
    with device.own("test"):
        stream = device.api.make_stream(independent=True)
    yield int(stream)
    control.capture()
    device.synchronize()
    with device.own("test"):
        device.api.destroy_stream(stream)


def test_Q2_what_queues_do_disturbs_no_capture(device, control, theirs):
    program, queue, gate = device.compile(twofold), device.queue(), hal.Event()
    x, y = hal.zeros(N, hal.int32, device), hal.zeros(N, hal.int32, device)
    device.synchronize()
    control.capture(theirs)
    event = x.copyin(np.full(N, 4, "i4"), queue=queue)
    program(y, x, vals=(N,), threads=N, queue=queue)
    expect(event.wait(20) and queue.synchronize(20))
    queue.wait(gate)
    large = hal.empty(3 << 20, hal.uint8, device)
    done = large.copyin(bytes(3 << 20), queue=queue)
    gate.set()
    expect(done.wait(20))
    for pinned in (False, True):
        spec = hal.BufferSpec(host=pinned, nolru=True)
        hal.Buffer(device, N, hal.int32, spec).allocate().fill(1).deallocate()
    for _ in range(130):  # each of which keeps its bytes
        x.copyin(np.full(N, 4, "i4"))
    del queue, large
    gc.collect()
    device.allocator.free_cache()
    expect(control.capture() == 0, "the capture is spoiled")
    expect(y.numpy().tolist() == [8] * N)


def test_Q2_large_copies_and_the_end_of_a_queue_disturb_no_capture(device, control, theirs):
    queue, large = device.queue(), hal.empty(6 * BLOCK_NBYTES, hal.uint8, device)
    queue.most_staged = 2
    program = device.compile(twofold.lower())  # one of its own
    device.synchronize()
    control.capture(theirs)
    large.copyin(np.full(large.size, 7, "u1"), queue=queue)
    program.unload()
    queue.close()
    expect(control.capture() == 0, "the capture is spoiled")
    expect((large.numpy() == 7).all())


def test_B5_a_large_copy_without_a_queue_disturbs_no_capture(device, control, theirs):
    large = hal.empty(5 * BLOCK_NBYTES, hal.uint8, device)  # each half of the staging is used twice
    device.synchronize()
    control.capture(theirs)
    for value in (6, 7):
        large.copyin(np.full(large.size, value, "u1"))
    expect(control.capture() == 0, "the capture is spoiled")
    expect((large.numpy() == 7).all())


def test_A4_an_allocation_that_waits_for_memory_disturbs_no_capture(device, control, fail, theirs):
    device.synchronize()
    control.capture(theirs)
    for call in ("MallocFromPoolAsync", "MemAllocFromPoolAsync"):  # HIP's name, and CUDA's
        fail(call, OUT_OF_MEMORY)
    made = hal.Buffer(device, 123457, hal.uint8, hal.BufferSpec(nolru=True)).allocate()
    expect(control.capture() == 0, "the capture is spoiled")
    made.deallocate()


def test_F1_what_a_profile_measures_disturbs_no_capture(device, control, theirs):
    x = hal.zeros(N, hal.int32, device)
    device.synchronize()
    with hal.profile() as profile:
        control.capture(theirs)
        x.fill(5)
        x.fill(6, queue=device.queue())
        spoiled = control.capture()
    expect(spoiled == 0, "the capture is spoiled")
    expect(len(profile.events) >= 2)


def test_Q5_a_poll_that_a_capture_forbids_is_no_failure(device, control, fail):
    """Refuse a call, as a runtime does that minds no thread's mode."""
    queue, x = device.queue(), hal.zeros(N, hal.int32, device)
    device.synchronize()
    event = x.fill(5, queue=queue)
    for _ in range(3):
        fail("EventQuery", UNSUPPORTED)
        expect(not event.done)
    fail("EventQuery", UNSUPPORTED)
    with pytest.raises(hal.InvalidState, match=r"^wait: .*captur.*\(?.*Another library captures"):
        event.wait(0)
    expect(event.wait(20) and x.numpy().tolist() == [5] * N)
    expect(x.fill(6, queue=queue).wait(20) and queue.synchronize(20))


def test_Q4_a_capture_does_not_keep_memory_of_a_dropped_queue(device, control, fail):
    x = hal.zeros(N, hal.int32, device)
    device.synchronize()
    queue = device.queue()
    x.fill(5, queue=queue)
    del queue
    gc.collect()
    for call in ("EventQuery", "StreamQuery"):
        fail(call, UNSUPPORTED)
    device.queue()  # which looks for what has ended
    control.clear()
    expect(device.synchronize(20) and not device.in_doubt)


def test_Q6_a_stream_that_is_captured_is_not_wrapped(device, control, theirs):
    control.capture(theirs)
    with pytest.raises(hal.InvalidArgument, match=r"^wrap: the stream is being captured"):
        hal.Queue.wrap(theirs, device)
    expect(control.capture() == 0, "the capture is spoiled")
    hal.Queue.wrap(theirs, device).close()


def test_Q6_a_wait_for_a_stream_that_is_captured_says_so(device, control, theirs):
    """Its events happen when the capture has ended."""
    queue, x = hal.Queue.wrap(theirs, device), hal.zeros(N, hal.int32, device)
    control.capture(theirs)
    event = x.fill(5, queue=queue)
    expect(not event.done)
    with pytest.raises(hal.InvalidState, match="Another library captures"):
        event.wait()
    control.capture()
    expect(event.wait(20) and x.numpy().tolist() == [5] * N)
    queue.close()


def test_a_wait_that_a_capture_forbids_says_so(device, control, theirs):
    x = hal.zeros(N, hal.int32, device)
    control.capture(theirs)
    for wait in (device.synchronize, x.numpy):
        with pytest.raises(hal.InvalidState, match="Another library captures"):
            wait()
    control.capture()
    expect(x.fill(3).numpy().tolist() == [3] * N)


def test_a_thread_whose_mode_cannot_be_changed_keeps_its_mode(device, control, fail, theirs):
    queue, x = device.queue(), hal.zeros(N, hal.int32, device)
    device.synchronize()
    event = x.fill(5, queue=queue)
    fail("ThreadExchangeStreamCaptureMode", 999)
    expect(event.wait(20))
    x.fill(6, queue=queue)
    expect(queue.synchronize(20))
    control.capture(theirs)
    with pytest.raises(hal.InvalidState):
        device.synchronize()

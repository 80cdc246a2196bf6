"""F1: the queue's timestamps are translated to the host's clock."""

import gc
import weakref
from time import perf_counter_ns, sleep

import numpy as np

import hal_core as hal
from hal_opencl.clock import OpenCLClock
from hal_opencl.driver import cl

SLACK_NS = 500_000


def test_F1_what_was_queued_lies_inside_of_the_call_that_queued_it(device):
    """Also when samples of both clocks lie between the calls."""
    made = OpenCLClock(device)
    seen = []
    for _ in range(4):
        before = perf_counter_ns()
        marker, times = made.measure(lambda: cl.enqueue_marker(device.commands))
        device.synchronize()
        seen.append((before, *times(), perf_counter_ns(), marker))
        sleep(0.3)
    for before, start, end, after, _ in seen:
        assert before - SLACK_NS <= start <= end <= after + SLACK_NS


def test_F1_pending_markers_are_bounded(device):
    made = OpenCLClock(device)
    made.most_pending = 10
    (first,) = made._pending
    for number in range(100):
        made._add_mark(made._mark(), first[0] + number)
        assert len(made._pending) <= 10 and made._pending[0] is first


def test_F1_work_is_read_though_later_work_is_not_done(hardware):
    device, made = hardware, OpenCLClock(hardware)
    _, times = made.measure(lambda: cl.enqueue_marker(device.commands))
    gate = cl.UserEvent(device.context)
    try:
        cl.enqueue_barrier(device.commands, wait_for=[gate])
        made._next_sample_ns = 0
        _, later = made.measure(lambda: cl.enqueue_marker(device.commands))
        start, end = times()
        assert start <= end <= perf_counter_ns() + SLACK_NS
        assert later(wait=False) == ()
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)
    start, end = later()
    assert start <= end


def test_F1_a_copy_that_was_recorded_lets_go_of_the_host_memory(device):
    class Bytes(bytearray):
        pass

    x = hal.zeros(1024, hal.int8, device)
    with hal.profile() as profile:
        data = Bytes(1024)
        reference = weakref.ref(data)
        x.copyin(data)
        del data
        gc.collect()
        assert reference() is None
    assert [event.kind for event in profile.events] == ["copyin"]


def test_F1_work_that_failed_has_the_time_of_its_call(device):
    made = OpenCLClock(device)
    failed = cl.UserEvent(device.context)
    before = perf_counter_ns()
    _, times = made.measure(lambda: failed)
    after = perf_counter_ns()
    failed.set_status(-5)
    start, end = times()
    assert before <= start <= end <= after


def test_F1_events_are_read_after_the_device_was_closed(device):
    own = type(device)("OPENCL", device.info)
    own._backend = device._backend
    own._backend.on_closing, before = lambda _: None, own._backend.on_closing
    try:
        with hal.profile() as profile, own:
            x = hal.Buffer(own, 1 << 20, hal.float32).fill(1)
            y = hal.Buffer(own, 1 << 20, hal.float32).copy_from(x)
            assert np.all(y.numpy() == 1)
            del x, y
    finally:
        own._backend.on_closing = before
    kinds = [event.kind for event in profile.events if event.kind not in ("alloc", "free")]
    assert kinds == ["fill", "copy", "copyout"]
    assert all(0 < event.seconds < 60 for event in profile.events if event.kind in kinds)

"""Queues and events where the kit does not reach: threads, locks, foreign queues, the end."""

import asyncio
import gc
import os
import signal
import threading

import pytest
from fake_backend import put
from in_threads import wait_until

import hal_core as hal
from hal_core.queue import PolledEvent, WorkerQueue
from hal_core.queue.watcher import Watcher


def test_Q1_without_queue_no_thread_is_started(fake):
    before = threading.active_count()
    hal.zeros(4, hal.int32, fake).fill(2)
    queue = fake.queue()
    assert threading.active_count() == before, "a queue without work needs no thread"
    assert queue.record().wait(5) and threading.active_count() == before + 1
    queue.close()
    assert threading.active_count() == before


def test_Q2_ctrl_c_ends_a_wait_and_harms_nothing(fake):
    queue, gate = fake.queue(), hal.Event()
    event = queue.wait(gate).record()
    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        event.wait(20)
    gate.set()
    assert event.wait(5)


def test_Q2_one_thread_watches_all_events_of_drivers():
    class Polled(PolledEvent):
        is_over = False

        def _poll(self):
            return self.is_over

    events = [Polled() for _ in range(200)]
    before = threading.active_count()

    async def wait():
        tasks = [asyncio.ensure_future(_await(event)) for event in events]
        await asyncio.sleep(0.005)
        assert threading.active_count() <= before + 1
        for event in events:
            event.is_over = True
        await asyncio.gather(*tasks)

    asyncio.run(wait())
    wait_until(lambda: threading.active_count() == before)  # the watcher ends with the last event


def test_Q2_a_callback_that_fails_stops_no_other(caplog):
    watcher, heard, again, asked = Watcher(), threading.Event(), threading.Event(), iter([0, 1])
    watcher.watch(lambda: True, lambda: 1 / 0)
    watcher.watch(lambda: bool(1 / next(asked)), again.set)  # fails the first time
    watcher.watch(lambda: True, heard.set)
    assert heard.wait(5)
    assert "callback failed" in caplog.text and "cannot be asked" in caplog.text
    assert again.wait(5)


def test_Q5_a_failure_names_what_ran_and_keeps_the_cause(fake):
    queue = WorkerQueue(fake, name="mine")

    def fail():
        raise ZeroDivisionError("by zero")

    put(queue, fail, "launch of nobody")
    for timeout in (None, 5, 0):  # the last ones have no work to wait for
        with pytest.raises(hal.DeviceFault, match="launch of nobody failed in mine") as caught:
            queue.synchronize(timeout)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_Q5_running_names_the_work(fake):
    queue, gate = fake.queue(), threading.Event()
    put(queue, lambda: gate.wait(5), "launch of slow")
    event = queue.record()
    assert not event.wait(0.05)
    assert queue.running == "launch of slow" and "running launch of slow" in repr(queue)
    gate.set()
    assert event.wait(5) and queue.running == ""


def test_a_queue_and_an_event_of_another_device_are_refused(fake):
    other = hal.Device["FAKE:1"].queue()
    with pytest.raises(hal.InvalidArgument, match=r"queue belongs to another device.*FAKE:1"):
        hal.zeros(4, hal.int32, fake).fill(1, queue=other)
    mine = fake.queue()
    early, late = mine.record(), other.record()
    assert early.wait(5) and late.wait(5)
    with pytest.raises(hal.InvalidArgument, match="have two clocks.*FAKE and FAKE:1"):
        late.seconds_since(early)
    fake.close()
    with pytest.raises(hal.InvalidState, match=r"the device is closed.*Open it again"):
        hal.zeros(4, hal.int32, fake.name).fill(1, queue=mine)


def test_events_that_failed_have_no_time(fake):
    queue = WorkerQueue(fake)
    early = queue.record()
    put(queue, lambda: 1 / 0)
    late = queue.record()
    assert early.wait(5)
    with pytest.raises(hal.DeviceFault):
        late.wait(5)
    with pytest.raises(hal.InvalidState, match="failed> has no time"):
        late.seconds_since(early)


def test_an_event_of_the_default_queue_has_the_time_of_its_record():
    device = hal.Device["PYTHON"]
    early, between = device.default_queue.record(), device.queue().record()
    assert between.wait(5)  # while nobody asks for `early`
    assert early.wait(5) and between.seconds_since(early) >= 0


@pytest.mark.parametrize("family", ["PYTHON", "CPU", "OPENCL", "FAKE"])
def test_Q4_a_queue_without_work_is_synchronized_at_once(fake, family):
    try:
        device = hal.Device[family]
    except (hal.UnknownDevice, hal.DeviceUnavailable) as error:
        pytest.skip(str(error))
    queue, gate = device.queue(), hal.Event()
    assert queue.synchronize(0)
    made = hal.zeros(4, hal.int32, device)
    queue.wait(gate)
    assert not queue.synchronize(0)
    gate.set()
    assert made.fill(1, queue=queue).wait(5)
    assert queue.synchronize(0) and queue.synchronize(0)


async def _await(event):
    await event


def test_Q3_a_caller_may_release_his_view_while_the_copy_waits(fake):
    queue, gate = fake.queue(), hal.Event()
    sent, got = bytearray(range(8)), bytearray(8)
    buffer = hal.zeros(8, hal.uint8, fake)
    queue.wait(gate)
    with memoryview(sent) as source, memoryview(got) as target:
        buffer.copyin(source, queue=queue)
        done = buffer.copyout(target, queue=queue)
    gate.set()
    assert done.wait(5)
    assert got == sent


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("whole", [False, True])
def test_Q2_a_wait_without_a_timeout_says_what_nobody_has_set(fake, caplog, whole):
    first, second, gate = fake.queue(), fake.queue(), hal.Event()
    second.wait(first.wait(gate).record())
    assert "waiting for an event that nobody has set" in repr(first)
    waiting = fake if whole else second
    assert waiting.synchronize(0.2) is False and not caplog.records
    threading.Timer(0.5, gate.set).start()
    assert waiting.synchronize()
    [record] = caplog.records
    way = f"{first.name} waits for <Event of the host pending>, which nobody has set"
    assert (way if whole else f"{second.name} waits for {way}") in record.getMessage()
    assert "nobody" not in repr(first)


@pytest.mark.usefixtures("impatient")
def test_Q4_a_long_wait_for_a_dropped_worker_blames_no_event(fake, caplog):
    queue, gate = WorkerQueue(fake), threading.Event()
    put(queue, lambda: gate.wait(5))
    del queue
    gc.collect()
    threading.Timer(0.3, gate.set).start()
    assert fake.synchronize() and not caplog.records


def test_Q2_events_are_watched_after_a_thread_could_not_be_started(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    watcher, called = Watcher(), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            watcher.watch(lambda: True, lambda: None)
    watcher.watch(lambda: True, called.set)
    assert called.wait(20)

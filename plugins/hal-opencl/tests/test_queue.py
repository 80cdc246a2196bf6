"""Queues of the driver: borrowed ones, failures of commands, calls within calls."""

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest
from counts import calls
from ctrl_c import Scene, press_everywhere
from interrupts import queues

import hal_core as hal
from hal_core.queue import Failure, KnownMemory
from hal_core.queue.ending import finish
from hal_opencl import driver

N = 64
HERE = (str(Path(driver.__file__).parent), "<launch")
MOST = 150  # places of a scene; all of them under HAL_TEST_EVERY_PLACE=1


@hal.kernel
def doubled(y: hal.Ptr[hal.int32]):
    i = hal.global_idx(0)
    y[i] = 2 * y[i]


def ints(device, value=0):
    return hal.Buffer.from_numpy(np.full(N, value, "i4"), device)


def test_Q6_a_borrowed_queue_is_ordered_with_ours_and_not_destroyed(device):
    theirs = cl.CommandQueue(device.context)
    gate = cl.UserEvent(device.context)
    cl.enqueue_barrier(theirs, wait_for=[gate])
    made, found = ints(device), np.zeros(N, "i4")
    queue = hal.Queue.wrap(theirs, device)
    event = made.fill(7, queue=queue)
    held = cl.enqueue_copy(theirs, found, made._buf[0], is_blocking=False)  # waits when it goes
    ours = device.queue().wait(event)
    copied = ints(device)
    done = copied.copy_from(made, queue=ours)
    assert not event.done and not done.done
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert done.wait(20) and copied.numpy().tolist() == [7] * N
    held.wait()
    queue.close()
    del queue
    gc.collect()
    cl.enqueue_fill_buffer(theirs, made._buf[0], np.int32(3), 0, 4 * N)
    theirs.finish()  # it works as ever
    assert found.tolist() == [7] * N and made.numpy().tolist() == [3] * N


def test_Q1_the_first_work_on_memory_is_behind_work_without_a_queue(device):
    gate, queue = cl.UserEvent(device.context), device.queue()
    cl.enqueue_barrier(device.commands, wait_for=[gate])
    made, old = hal.zeros(N, hal.int32, device), hal.empty(N, hal.int32, device)
    done = made.fill(7, queue=queue)
    assert not done.wait(0.05)
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert done.wait(20) and device.synchronize() and made.numpy().tolist() == [7] * N
    old.fill(1, queue=queue).wait()
    gate = cl.UserEvent(device.context)
    cl.enqueue_barrier(device.commands, wait_for=[gate])
    made.fill(8)
    assert old.fill(2, queue=queue).wait(20)  # it has used this memory before
    gate.set_status(cl.command_execution_status.COMPLETE)


def failing(device):
    """Return a queue, an event of it, and a call by which both fail."""
    queue, outside = device.queue(), hal.Event()
    event = queue.wait(outside).record()
    failure = Failure("launch of nobody", "queue 9", RuntimeError("it broke"))
    return queue, event, lambda: outside._happen(failure)


@pytest.mark.parametrize("queues_between", [0, 2])
@pytest.mark.parametrize("moment", ["before", "within", "after"])
def test_Q5_work_behind_the_failure_of_another_queue_does_not_run(
    device, monkeypatch, moment, queues_between
):
    """PoCL never comes to work behind an event that has failed, or runs it at once."""
    (_, failed, fail), waiting, made = failing(device), device.queue(), ints(device)
    for _ in range(queues_between):
        failed = device.queue().wait(failed).record()

    def fails_within(*_):
        monkeypatch.undo()
        fail()
        time.sleep(0.05)  # the driver drops what it has
        return True

    if moment == "before":
        fail()
    waiting.wait(failed)
    if moment == "within":  # between a look at what waits, and the work
        monkeypatch.setattr(KnownMemory, "lacks", fails_within)
    dropped = made.fill(3, queue=waiting)
    if moment == "after":
        fail()
    for end in (dropped, failed):  # nobody has asked the other queue yet
        with pytest.raises(hal.DeviceFault, match="launch of nobody failed in queue 9"):
            end.wait(20)
    assert made.numpy().tolist() == [0] * N


def test_Q5_events_fail_behind_one_that_has_failed(device):
    """PoCL goes through what waits for an event, also where that has failed and nobody keeps it."""
    (queue, _, fail), others = failing(device), [hal.Event() for _ in range(20)]
    for one in others:
        queue.wait(one)
        one._end_with(Failure("work", "the host", ValueError()))  # and has told nobody yet
    done = queue.record()
    fail()
    with pytest.raises(hal.DeviceFault, match="launch of nobody"):
        done.wait(20)
    for one in others:
        one._happen(None)


def test_Q8_an_event_fails_while_the_driver_is_given_work(device, monkeypatch):
    """A finalizer or a handler in that call may wait for the thread that tells of the failure."""
    (queue, _, fail), made, fill = failing(device), ints(device), cl.enqueue_fill_buffer

    def fails_within(*args):
        teller = threading.Thread(target=fail, daemon=True)
        teller.start()
        teller.join(5)
        assert not teller.is_alive()
        return fill(*args)

    monkeypatch.setattr(cl, "enqueue_fill_buffer", fails_within)
    dropped = made.fill(3, queue=queue)
    with pytest.raises(hal.DeviceFault, match="launch of nobody"):
        dropped.wait(20)
    assert made.numpy().tolist() == [0] * N


@pytest.mark.parametrize("seconds", [0, 0.05])
def test_Q5_the_default_queue_goes_on_after_a_wait_that_fails(device, seconds):
    """PoCL ends the process when commands fail to which nothing refers, as to those in it."""
    (_, event, fail), made = failing(device), ints(device)
    threading.Timer(seconds, fail).start()
    with pytest.raises(hal.DeviceFault, match="launch of nobody"):
        device.default_queue.wait(event)
    made.fill(1).fill(2)
    assert made.fill(4, queue=device.default_queue).wait(20) and made.numpy().tolist() == [4] * N


@pytest.mark.parametrize("turn", range(40))  # one in ten ended the process
def test_Q5_first_work_on_memory_fails_before_the_work_that_it_follows_is_done(device, turn):
    (queue, _, fail), made = failing(device), ints(device)
    gate = cl.UserEvent(device.context)
    cl.enqueue_barrier(device.commands, wait_for=[gate])
    new = hal.zeros(N, hal.int32, device)  # behind the gate
    for one in (new, made):
        one.fill(7, queue=queue)
    done = made[1:].copy_from(made[:-1], queue=queue)  # two commands of the driver
    fail()
    gate.set_status(cl.command_execution_status.COMPLETE)
    with pytest.raises(hal.DeviceFault, match="launch of nobody"):
        done.wait(20)
    assert new.numpy().tolist() == made.numpy().tolist() == [0] * N


def test_Q1_the_default_queue_takes_part_in_copies_between_devices(device):
    """A copy through the host needs its turn in the default queue, which may wait for that copy."""
    made, theirs = ints(device), ints(hal.Device["PYTHON"], 5)
    assert made.copy_from(theirs, queue=device.default_queue).wait(20)
    for to, source in ((theirs, made.fill(6)), (made, theirs)):
        queue, gate = hal.Device[to.device].queue(), hal.Event()
        to.copy_from(source, queue=queue.wait(gate))
        threading.Timer(0.05, gate.set).start()
        device.default_queue.wait(queue.record())
        assert queue.synchronize(20) and to.numpy().tolist() == [6] * N


def test_Q2_an_event_of_the_default_queue_is_behind_work_without_a_queue(device):
    queue, made = device.default_queue, ints(device)
    first, second = cl.UserEvent(device.context), cl.UserEvent(device.context)
    cl.enqueue_barrier(device.commands, wait_for=[first])  # as long work that is given no queue
    filled = made.fill(1, queue=queue)
    cl.enqueue_barrier(device.commands, wait_for=[second])
    after = queue.record()
    first.set_status(cl.command_execution_status.COMPLETE)
    early = filled.wait(20) and after.done
    second.set_status(cl.command_execution_status.COMPLETE)
    assert not early and after.wait(20)


def test_Q6_a_queue_of_another_context_or_without_an_order_is_refused(device):
    other = cl.CommandQueue(cl.Context([device.hardware]))
    unordered = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    loose = cl.CommandQueue(device.context, properties=unordered)
    for queue, why in ((other, "another context"), (loose, "out of order")):
        with pytest.raises(hal.InvalidArgument, match=why):
            hal.Queue.wrap(queue, device)
    with pytest.raises(hal.InvalidArgument, match=r"or hal\.Queue\.wrap"):
        ints(device).fill(1, queue=other)


def test_Q6_a_borrowed_queue_without_timestamps_replays_graphs_and_refuses_to_measure(device):
    queue, made = hal.Queue.wrap(cl.CommandQueue(device.context), device), ints(device)
    with device.capture() as graph:
        made.fill(3)
    assert graph.replay(queue=queue).wait(20) and made.numpy().tolist() == [3] * N
    text = "__kernel void measured(__global int *y) { y[get_global_id(0)] = 5; }"
    program = device.compile(hal.Source("measured", text, "y: int32*", language="opencl"))
    early, late = queue.record(), queue.record()
    assert late.wait(20)
    for measure in (
        lambda: program(made, threads=N, queue=queue, wait=True),
        lambda: late.seconds_since(early),
    ):
        with pytest.raises(hal.Unsupported, match="no timestamps"):
            measure()


@pytest.fixture
def enqueued(monkeypatch):
    """The calls of the driver that add a command to a queue or wait for one."""
    made = []

    def count(place, name):
        call = getattr(place, name)
        counted = lambda *args, **more: [made.append(name), call(*args, **more)][1]  # noqa: E731
        monkeypatch.setattr(place, name, counted)

    for name in ("marker", "barrier", "fill_buffer", "nd_range_kernel"):
        count(cl, f"enqueue_{name}")
    for name in ("enqueue_read", "enqueue_write"):
        count(driver, name)
    return made


def test_Q2_work_with_its_event_is_one_call_of_the_driver(device, enqueued):
    text = "__kernel void one_call(__global int *y) { y[get_global_id(0)] = 5; }"
    program = device.compile(hal.Source("one_call", text, "y: int32*", language="opencl"))
    made, found, gate = ints(device), np.zeros(N, "i4"), hal.Event()
    queue = device.queue()
    program(made, threads=N, queue=queue)
    queue.wait(gate)  # so that nothing is over when the next call looks
    enqueued.clear()
    assert calls(lambda: program(made, threads=N, queue=queue)) < 25
    launched, again = queue.record(), queue.record()
    read = made.copyout(found, queue=queue)
    filled = made.fill(7, queue=queue)
    assert enqueued == ["enqueue_nd_range_kernel", "enqueue_read", "enqueue_fill_buffer"]
    assert not launched.done and not read.done and calls(lambda: read.done) < 4
    gate.set()
    assert filled.wait(20) and launched.done and again.done and read.done
    assert found.tolist() == [5] * N and made.numpy().tolist() == [7] * N


def test_Q4_hundreds_of_queues_may_wait_in_a_row(device):
    """A look at one looked at the one before, within: 260 were more than Python's frames."""
    made, before = ints(device), hal.Event()
    start = before
    for number in range(500):
        queue = device.queue().wait(before)
        made.fill(number, queue=queue)
        before = queue.record()
    start.set()
    assert before.wait(60) and made.numpy().tolist() == [499] * N


def test_Q2_a_copy_and_a_wait_for_it_make_few_calls(device, enqueued):
    queue, made, sent, ends = device.queue(), ints(device), np.arange(N, dtype="i4"), []
    assert made.copyin(sent, queue=queue).wait(20)
    enqueued.clear()
    queued = calls(lambda: ends.append(made.copyin(sent, queue=queue)))
    while not queue._pending[0].is_over:
        time.sleep(0.001)
    assert queued < 37 and calls(ends[0].wait) < 16
    assert enqueued == ["enqueue_write"] and made.numpy().tolist() == sent.tolist()


def test_Q2_an_event_of_an_idle_queue_has_a_time_of_its_own(device):
    queue, made = device.queue(), ints(device)
    assert made.fill(1, queue=queue).wait(20)
    early = made.fill(1, queue=queue)
    assert early.wait(20)
    while not (late := queue.record()).wait(20) or late.seconds_since(early) < 0.01:
        time.sleep(0.01)  # the next one is later


def test_Q5_a_command_that_the_driver_refuses_fails_its_queue(device):
    queue, made = device.queue(), ints(device)
    before = queue.record()
    queue._add("launch of nobody", (), 0, lambda: cl.enqueue_fill_buffer(
        queue.commands, made._buf[0], np.int32(0), 1 << 40, 4))  # fmt: skip
    made.fill(3, queue=queue)
    for _ in range(2):
        with pytest.raises(hal.DeviceFault, match="launch of nobody failed in queue"):
            queue.synchronize(20)
    assert before.wait(20) and made.numpy().tolist() == [0] * N


@pytest.mark.parametrize("platform", ["the tests'", "a simulator's"])
def test_Q1_a_queue_of_a_simulator_waits_for_events_on_the_host(device, monkeypatch, platform):
    """Such a platform does the work of a command queue in the thread that calls."""
    opened = device
    if platform == "a simulator's":
        found = [one for one in hal.Device.devices("OPENCL") if "oclgrind" in one.title.lower()]
        if not found:
            pytest.skip("Oclgrind is not installed")
        opened = hal.Device[found[0].name]
    monkeypatch.setattr(opened, "is_simulated", True)
    program = opened.compile(hal.Source("set", """
        __kernel void set(__global int *y) { y[get_global_id(0)] += 5; }
        """, "y: int32*", language="opencl"))  # fmt: skip
    queue, other, gate, back = opened.queue(), opened.queue(), hal.Event(), np.zeros(N, "i4")
    made, copied = ints(opened, 1), ints(opened)
    queue.wait(gate)
    program(made, threads=N, queue=queue)
    other.wait(queue.record())
    made.fill(7, queue=other)
    program(made, threads=N, queue=other)
    copied.copy_from(made, queue=other)
    done = copied.copyout(back, queue=other)
    assert not done.done
    gate.set()
    assert done.wait(20) and back.tolist() == [12] * N
    with opened.capture() as graph:
        program(made, threads=N)
    graph.replay(queue=other)
    made.copyin(np.full(N, 3, "i4"), queue=queue.wait(other.record()))
    assert program(made, threads=N, wait=True, queue=queue) >= 0
    assert made.numpy().tolist() == [8] * N
    for one in (queue, other):
        one.close()


def test_Q2_ctrl_c_in_a_wait_loses_no_event(device):
    assert press_everywhere(lambda: queues.begins(device), MOST) > 20


def test_Q5_a_replay_behind_an_event_that_fails_is_dropped(device):
    """PoCL ends the process where the commands of a native replay fail."""
    program, made, gate = device.compile(doubled), ints(device, 1), hal.Event()
    with device.capture() as graph:
        for _ in range(3):
            program(made, threads=N)
    done = graph.replay(queue=device.queue().wait(gate))
    gate._happen(Failure("work", "the host", ValueError()))
    with pytest.raises(hal.HalError):
        done.wait(20)
    assert made.numpy().tolist() == [1] * N


def test_Q4_a_queue_knows_the_work_that_ctrl_c_came_into(device):
    """Else its memory would go to another buffer before the driver has done the work."""
    assert press_everywhere(lambda: queues.drops(device), 1000, files=HERE) > 20


def test_Q1_other_queues_are_behind_work_without_a_queue_that_ctrl_c_came_into(device):
    program, queue = device.compile(doubled), device.queue()

    def scene():
        made = [hal.zeros(N, hal.int32, device) for _ in range(2)]
        device.synchronize()
        gate = cl.UserEvent(device.context)
        cl.enqueue_barrier(device.commands, wait_for=[gate])

        def work():
            made[0].fill(7)
            program(made[0], threads=N)
            made[1].copy_from(made[0])

        def check(heard):
            made.clear()
            others = [hal.empty(N, hal.int32, device) for _ in range(2)]
            for one in others:
                one.fill(3, queue=queue)
            gate.set_status(cl.command_execution_status.COMPLETE)
            assert queue.synchronize(10) and device.synchronize(10)
            assert [set(one.numpy().tolist()) for one in others] == [{3}, {3}], heard.where

        return Scene(work, check)

    assert press_everywhere(scene, 1000, files=HERE) > 20


def test_Q8_a_wait_of_a_handler_within_a_call_of_its_queue_raises(device):
    """The call goes on when the handler has returned: the wait would never end."""
    queue, gate = device.queue(), hal.Event()
    queue.wait(gate)
    event = queue.record()
    # As close does; and the device does not give up what the queue waits for.
    for wait in (lambda: event.wait(5), lambda: finish(event, device), device.synchronize):
        with queue._lock, pytest.raises(hal.InvalidState, match="handler waits within a call"):
            wait()
    gate.set()
    assert event.wait(10)


def test_Q8_a_handler_within_a_call_of_the_default_queue_waits_for_other_queues(device):
    queue, gate = device.queue(), cl.UserEvent(device.context)
    cl.enqueue_barrier(device.commands, wait_for=[gate])
    made = hal.zeros(N, hal.int32, device)
    with device.default_queue._lock:
        done = made.fill(7, queue=queue)  # behind the zeros
        assert not done.wait(0.05)
        gate.set_status(cl.command_execution_status.COMPLETE)
        assert done.wait(10)
    assert made.numpy().tolist() == [7] * N

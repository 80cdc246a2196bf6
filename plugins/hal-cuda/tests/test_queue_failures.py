"""Queues and graphs of streams where something fails in the middle, or goes in a wrong order."""

import contextlib
import gc
import threading
import time
import weakref

import numpy as np
import pytest
from any_order import N, twofold

import hal_core as hal
from hal_streams.driver import Refused, explain
from hal_testing.conformance.forked import findings_of_child


@hal.kernel
def put(y: hal.Ptr[hal.float32], v: hal.float32, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = v


def live(device):
    return device.allocator.statistics().live


def ints(device, value):
    return hal.Buffer.from_numpy(np.full(N, value, "i4"), device)


def test_G2_a_replay_that_was_refused_half_way_leaves_nothing_half_set(device, simulator):
    program = device.compile(twofold)
    x, y, z, other = (ints(device, value) for value in (3, 0, 0, 0))
    with device.capture() as graph:
        program(y, x, vals=(N,), threads=N)
        program(z, y, vals=(N,), threads=N)
    graph.replay()
    simulator.fail("cuGraphExecKernelNodeSetParams", 999, 2)
    with pytest.raises(hal.HalError, match="cuGraphExecKernelNodeSetParams"):
        graph.replay({y: other})
    y.fill(0)
    z.fill(0)
    graph.replay()
    assert [one.numpy()[0] for one in (y, z, other)] == [6, 12, 0]


def test_G2_minus_zero_is_another_value(device):
    y = hal.zeros(N, hal.float32, device)
    with device.capture() as graph:
        device.compile(put)(y, vals=(0.0, N), threads=N)
    graph.replay()
    graph[0].update(vals=(-0.0, N))
    graph.replay()
    assert np.signbit(y.numpy()).all()


@pytest.mark.parametrize("gate_is_first", [True, False])
def test_Q3_a_copyin_reads_what_an_earlier_copyout_has_still_to_write(
    device, simulator, gate_is_first
):
    queue, gate, host = device.queue(), hal.Event(), np.zeros(N, "i4")
    x, y = ints(device, 7), ints(device, 1)
    simulator.shuffle(1)
    if gate_is_first:
        queue.wait(gate)
    x.copyout(host, queue=queue)
    if not gate_is_first:
        queue.wait(gate)
    done = y.copyin(host, queue=queue)
    gate.set()
    assert done.wait(20)
    simulator.shuffle(0)
    assert y.numpy().tolist() == [7] * N


def test_Q4_memory_of_a_copy_that_failed_half_way_is_kept_until_the_half_is_done(device, simulator):
    queue, nbytes = device.queue(), 12 << 20
    x = hal.empty(nbytes, hal.uint8, device)
    lease = weakref.ref(x._share())
    simulator.shuffle(1)  # nothing is done while nobody asks
    simulator.fail("cuMemcpyHtoDAsync", 999, 2)
    x.copyin(np.ones(nbytes, "u1"), queue=queue)
    del x, queue
    gc.collect()
    assert lease() is not None
    simulator.shuffle(0)
    device.synchronize()
    device.queue().close()  # which forgets what has ended
    assert lease() is None


def test_Q6_the_owner_of_a_borrowed_stream_lives_until_its_work_is_done(device, simulator):
    class Owner:
        def __init__(self):
            with device.own("test"):
                self.handle = device.api.make_stream(independent=True)

        def __cuda_stream__(self):
            return 0, int(self.handle)

        def __del__(self):
            with device.own("test"):
                device.api.destroy_stream(self.handle)

    stale, x, owner = simulator.stale(), ints(device, 1), Owner()
    device.synchronize()
    simulator.shuffle(1)
    queue = hal.Queue.wrap(owner, device)
    x.fill(5, queue=queue)
    kept = weakref.ref(owner)
    del owner, queue
    gc.collect()
    assert kept() is not None
    simulator.shuffle(0)
    device.synchronize()
    device.queue().close()
    gc.collect()
    assert kept() is None and simulator.stale() == stale


def test_P10_closing_a_queue_while_others_launch_in_it(device, simulator):
    program, x, y = device.compile(twofold), ints(device, 1), ints(device, 0)
    stale = simulator.stale()
    for _ in range(10):
        queue, raised = device.queue(), list[type]()

        def launch():
            try:
                limit = time.monotonic() + 60
                while time.monotonic() < limit:
                    program(y, x, vals=(N,), threads=N, queue=queue)  # noqa: B023
            except BaseException as error:
                raised.append(type(error))  # noqa: B023

        threads = [threading.Thread(target=launch, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.004)
        queue.close()
        for thread in threads:
            thread.join(60)
        assert raised == [hal.InvalidState] * 3
    assert simulator.stale() == stale


def test_Q4_memory_of_work_that_nobody_knows_to_be_done_is_kept(device, simulator):
    """A status that is no fault says nothing about the work."""
    for dropped in (False, True):
        queue, x = device.queue(), hal.empty(9 << 20, hal.uint8, device)
        before = live(device)
        device.synchronize()
        simulator.shuffle(1)
        event = x.fill(5, queue=queue)
        del x
        if dropped:
            del event, queue
            gc.collect()
            simulator.fail("cuEventQuery", 999)
            device.queue()  # which looks for what has ended
        else:
            simulator.fail("cuEventQuery", 999)
            with pytest.raises(hal.DeviceFault, match="cuEventQuery"):
                event.wait(20)
        assert live(device) == before
        simulator.shuffle(0)
        if dropped:
            device.close()
        else:
            device.synchronize()
            with pytest.raises(hal.DeviceFault, match="cuEventQuery"):
                queue.close()
            assert live(device) == before - 1


def test_Q4_memory_is_kept_when_work_of_another_device_failed(device, other, simulator):
    """The work here is as far as it was."""
    queue, there = device.queue(), other.queue()
    x, y = hal.empty(N, hal.uint8, device), hal.empty(N, hal.uint8, other)
    before = live(device)
    simulator.shuffle(1)
    queue.wait(y.fill(1, queue=there))
    first, last = queue.record(), x.fill(5, queue=queue)
    simulator.fail("cuEventQuery", 999)
    with pytest.raises(hal.DeviceFault):
        there.synchronize(20)
    with pytest.raises(hal.DeviceFault):
        first.wait(20)
    del x
    assert live(device) == before
    simulator.shuffle(0)
    with pytest.raises(hal.DeviceFault):
        last.wait(20)
    assert live(device) == before - 1
    for one in (queue, there):
        with pytest.raises(hal.DeviceFault):
            one.close()


def test_Q1_a_device_is_not_idle_while_a_queue_that_failed_still_works(device, simulator):
    queue, x, y = device.queue(), ints(device, 1), ints(device, 0)
    simulator.delay("cuLaunchKernel", 0.2)
    device.compile(twofold)(y, x, vals=(N,), threads=N, queue=queue)
    simulator.fail("cuMemsetD32Async", 999)
    x.fill(3, queue=queue)
    assert not device.synchronize(0.01)
    assert device.synchronize(20)
    assert device.call("test", device.api.is_done, queue.stream)
    with pytest.raises(hal.DeviceFault, match="cuMemsetD32Async"):
        queue.close()


def test_Q2_asking_again_makes_no_events(device, simulator):
    queue, x = device.queue(), ints(device, 0)
    device.synchronize()
    simulator.delay("cuMemsetD32Async", 0.2)
    x.fill(3, queue=queue)
    made = simulator.all_calls().get("cuEventRecord", 0)
    for ask in (device.synchronize, queue.synchronize):
        while not ask(0):
            assert simulator.all_calls()["cuEventRecord"] - made <= 1
    y = x.fill(4, queue=queue)
    assert device.synchronize(20) and y.done  # new work counts
    gate = hal.Event()
    queue.wait(gate)
    for _ in range(50):
        assert not queue.synchronize(0)
    gate.set()
    assert queue.synchronize(20)


def test_Q2_done_does_not_wait_for_a_launch_of_another_thread(device, monkeypatch):
    """A launch waits while the driver's queue is full."""
    queue, x = device.queue(), ints(device, 0)
    event, entered, leave = x.fill(3, queue=queue), threading.Event(), threading.Event()
    fill, left = device.api.fill, list[bool]()

    def slow(*given):
        entered.set()
        left.append(leave.wait(20))
        fill(*given)

    monkeypatch.setattr(device.api, "fill", slow)
    thread = threading.Thread(target=lambda: x.fill(4, queue=queue))
    thread.start()
    assert entered.wait(20)
    event.done
    assert not left, "it waited for the launch"
    leave.set()
    thread.join(20)
    assert all(left) and event.wait(20) and queue.synchronize(20)


def test_Q6_the_default_stream_of_another_library_is_that_of_our_context(device, other, simulator):
    """Its handles, 0 and 1, mean the stream of whichever context is current."""
    ours = int(other.context)
    with other.own("test"):
        stream = other.api.make_stream()  # which the default stream of its context waits for
    for handle in (0, 1):
        x, before = hal.zeros(N, hal.int32, other), hal.empty(N, hal.int32, other)
        own, default = hal.Queue.wrap(int(stream), other), hal.Queue.wrap(handle, other)
        other.synchronize()
        simulator.shuffle(1)
        simulator.set_context(int(device.context))
        x.fill(1, queue=own)
        simulator.set_context(int(device.context))
        done = before.copy_from(x, queue=default)
        assert done.wait(20)
        simulator.shuffle(0)
        assert before.numpy().tolist() == [1] * N
        own.close()
        default.close()
    with other.own("test"):
        other.api.destroy_stream(stream)
    assert int(other.context) == ours


def test_Q6_a_stream_of_another_device_or_of_each_thread_is_refused(device, other):
    queue = other.queue()
    elsewhere = r"^wrap: (no|a stream of another)"
    for stream, why in (
        (queue, elsewhere), (int(queue.stream), elsewhere), (-1, elsewhere),
        (2, "another one in each thread"),
    ):  # fmt: skip
        with pytest.raises(hal.InvalidArgument, match=why):
            hal.Queue.wrap(stream, device)
    queue.close()


def test_Q4_queues_that_are_wrapped_and_dropped_do_not_pile_up(device):
    with device.own("test"):
        stream = device.api.make_stream()
    before = live(device)
    for value in range(50):
        ints(device, 0).fill(value, queue=hal.Queue.wrap(int(stream), device))
        gc.collect(0)
        device.call("test", device.api.wait, stream)
    assert live(device) < before + 3
    device.synchronize()
    with device.own("test"):
        device.api.destroy_stream(stream)


def test_A8_memory_that_queues_have_done_with_counts_as_free(device):
    queue, nbytes = device.queue(), 1 << 20
    device.allocator.free_cache()
    limit, used = device.allocator.limit, device.allocator.statistics().current
    device.allocator.limit = used + nbytes
    try:
        hal.empty(nbytes, hal.uint8, device).fill(1, queue=queue)
        device.call("test", device.api.wait, queue.stream)  # nobody has asked the queue since
        assert hal.empty(nbytes, hal.uint8, device).fill(2).numpy()[-1] == 2
    finally:
        device.allocator.limit = limit


def test_Q6_an_event_of_a_closed_device_is_given_to_no_driver(device, other, simulator):
    event = hal.zeros(N, hal.int32, other).fill(1, queue=other.queue())
    assert event.wait(20)
    other.close()
    queue, stale = device.queue(), simulator.stale()
    with hal.profile():  # which shows waits that were short, too
        queue.wait(event)
        assert queue.synchronize(20)
    assert simulator.stale() == stale


@pytest.mark.parametrize("code", [214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721])
def test_every_status_of_a_lost_context_is_a_fault(code):
    error = explain(Refused("cuStreamSynchronize", code, "NAME", "words"), "wait", "CUDA")
    assert type(error) is hal.DeviceFault and "context is lost" in str(error)


def test_X2_a_forked_child_that_sets_an_event_calls_no_driver(device, simulator):
    queue, gate, x = device.queue(), hal.Event(), ints(device, 1)
    done = x.fill(2, queue=queue)
    device.synchronize()
    queue.wait(gate)
    x.fill(3, queue=queue)

    def in_the_child():
        before = simulator.all_calls()
        gate.set()
        with pytest.raises(hal.ForkError):
            done.seconds_since(done)
        return [*simulator.calls_since(before)]

    assert findings_of_child(in_the_child) == []
    gate.set()
    assert queue.synchronize(20) and x.numpy()[0] == 3


@pytest.mark.parametrize("seed", range(1, 5))
def test_T1_a_queue_comes_after_what_an_import_waits_for(device, simulator, seed):
    program, queue = device.compile(twofold), device.queue()
    x, y = ints(device, 1), ints(device, 0)
    program(y, y, vals=(N,), threads=N, queue=queue)  # so that the queue knows all but the import
    device.synchronize()
    simulator.shuffle(seed)
    x.fill(7)
    imported = hal.Buffer.from_dlpack(x, device)
    program(y, imported, vals=(N,), threads=N, queue=queue)
    done = queue.record()
    assert done.wait(20)
    simulator.shuffle(0)
    assert y.numpy().tolist() == [14] * N


@pytest.mark.parametrize("code", [700, 900, 999])
def test_a_repr_raises_nothing_whatever_the_driver_answers(device, simulator, code):
    queue, x = device.queue(), ints(device, 1)
    with device.capture() as graph:
        x.fill(2)
    graph.replay()
    device.synchronize()
    simulator.shuffle(1)
    event = x.fill(5, queue=queue)
    shown = device, device.allocator, x, graph, graph[0], queue, event, device.default_queue
    for call in ("cuEventQuery", "cuStreamQuery", "cuPointerGetAttribute", "cuCtxSetCurrent"):
        simulator.fail(call, code)
    for one in shown:
        assert repr(one) and str(one)
    simulator.clear()
    with contextlib.suppress(hal.HalError):
        device.close()
    for one in shown:
        assert repr(one) and str(one)


def test_Q4_a_dropped_queue_waits_for_its_own_work_on_the_stream_of_others(device, simulator):
    with device.own("test"):
        stream = device.api.make_stream(independent=True)
    x, theirs = ints(device, 1), ints(device, 2)
    lease = weakref.ref(x._share())
    device.synchronize()
    simulator.shuffle(1)  # nothing is done while nobody asks
    x.fill(5, queue=hal.Queue.wrap(int(stream), device))
    del x
    gc.collect()
    assert lease() is not None
    address = theirs.__cuda_array_interface__["data"][0]
    for _ in range(200):
        device.api.fill(address, b"\0", N, stream)
    while lease() is not None:
        device.queue().close()  # which forgets what has ended
        time.sleep(1e-3)  # or the thread that carries out work may never get the driver's lock
    assert not device.call("test", device.api.is_done, stream)
    simulator.shuffle(0)
    device.api.wait(stream)
    with device.own("test"):
        device.api.destroy_stream(stream)


@pytest.mark.parametrize("known", ["before the wait", "by an event", "by a launch"])
def test_Q5_a_failure_of_another_device_does_not_end_the_default_queue(
    device, other, simulator, known
):
    default, there, program = device.default_queue, other.queue(), device.compile(twofold)
    x, y, z = ints(device, 1), ints(device, 0), hal.zeros(N, hal.int32, other)
    device.synchronize()
    simulator.shuffle(1)
    event = z.fill(1, queue=there)

    def fail():
        simulator.fail("cuEventQuery", 999)
        with pytest.raises(hal.DeviceFault):
            there.synchronize(20)

    if known == "before the wait":
        fail()
        with pytest.raises(hal.DeviceFault, match="cuEventQuery"):
            default.wait(event)
    else:
        default.wait(event)
        last = x.fill(3, queue=default)
        if known == "by a launch":
            del last
        fail()
        device.synchronize()
        if known == "by a launch":
            for _ in range(9):
                default.look()
            last = default.record()
        with pytest.raises(hal.DeviceFault, match=r"failed in queue .* of CUDA:1"):
            last.wait(20)
    simulator.shuffle(0)
    x.fill(4, queue=default)
    program(y, x, vals=(N,), threads=N, queue=default)
    assert default.synchronize(20) and y.numpy().tolist() == [8] * N
    with pytest.raises(hal.DeviceFault):
        there.close()

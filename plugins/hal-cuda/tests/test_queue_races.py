"""Queues that several threads use at once, and that end in the middle of their work."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from typing import Any

import numpy as np
import pytest
from any_order import N, twofold
from simulator import Simulator

import hal_core as hal
from hal_streams import queue as queues


def ints(device: hal.Compiled, value: int) -> hal.Buffer:
    return hal.Buffer.from_numpy(np.full(N, value, "i4"), device)


def test_Q2_a_wait_sees_work_whose_end_another_thread_marks_meanwhile(
    device: hal.Compiled, simulator: Simulator
) -> None:
    queue, x = device.queue(), ints(device, 1)
    device.synchronize()
    simulator.shuffle(1)
    device.compile(twofold)(x, x, vals=(N,), threads=N, queue=queue)
    events = list[hal.Event]()
    other = threading.Thread(target=lambda: events.append(queue.record()))

    class Pending(deque[Any]):
        """Stretches; while a thread looks whether there are any, another one adds the first."""

        def __len__(self) -> int:
            found = super().__len__()
            if threading.current_thread() is not other and not other.ident:
                other.start()
                other.join(0.5)
            return found

    queue._pending = Pending(queue._pending)
    end = queue._record_end()
    assert not end._done or device.call("test", device.api.is_done, queue.stream)
    simulator.shuffle(0)
    assert end.wait(20)
    other.join(20)
    assert events[0].wait(20)


def test_Q5_work_before_a_failure_does_not_fail_with_it(
    device: hal.Compiled, simulator: Simulator
) -> None:
    """Also where it waits for data of the host, which ends with a step there."""
    first, later, host = device.queue(), device.queue(), np.zeros(N, "i4")
    x, y = ints(device, 7), ints(device, 1)
    device.synchronize()
    simulator.shuffle(1)
    later.wait(x.copyout(host, queue=first))
    good = y.fill(2, queue=later)
    simulator.fail("cuMemsetD32Async", 999)
    bad = y.fill(3, queue=later)
    simulator.shuffle(0)
    assert good.wait(20)
    with pytest.raises(hal.DeviceFault, match="fill failed"):
        bad.wait(20)


def test_Q5_an_event_that_fails_during_the_wait_does_not_end_the_default_queue(
    device: hal.Compiled, other: hal.Compiled, simulator: Simulator
) -> None:
    default, there = device.default_queue, other.queue()
    x, z = ints(device, 1), hal.zeros(N, hal.int32, other)
    for one in (device, other):
        one.synchronize()
    simulator.shuffle(1)
    event, asked = z.fill(1, queue=there), []

    def is_over() -> bool:
        asked.append(1)
        if len(asked) == 2:  # it was pending when it was asked first
            simulator.fail("cuEventQuery", 999)
        return event._poll() if len(asked) > 1 else False

    event._is_over = is_over
    with pytest.raises(hal.DeviceFault, match=r"failed in queue .* of CUDA:1"):
        default.wait(event)
    simulator.shuffle(0)
    x.fill(4, queue=default)
    assert default.synchronize(20) and x.numpy().tolist() == [4] * N
    with pytest.raises(hal.DeviceFault):
        there.close()


def test_Q6_a_closed_queue_makes_none_of_the_calls_that_were_kept(
    device: hal.Compiled, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raise what Ctrl-C raises in the wait of `close`."""
    queue, gate, x = device.queue(), hal.Event(), ints(device, 1)
    device.synchronize()
    queue.wait(gate)
    for value in range(20):
        x.fill(value, queue=queue)
    stale, fill, begun = simulator.stale(), device.api.fill, threading.Event()

    def slow(*arguments: Any) -> None:
        begun.set()
        time.sleep(0.02)
        fill(*arguments)

    monkeypatch.setattr(device.api, "fill", slow)
    gate.set()
    assert begun.wait(20)

    def interrupted(timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(queue, "synchronize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.close()
    at_work = queue._servers.get(0)
    if at_work is not None:
        at_work.join(20)
    assert simulator.stale() == stale


def test_Q2_a_look_does_not_wait_for_a_call_that_was_kept(
    device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, gate, x = device.queue(), hal.Event(), ints(device, 1)
    fill, begun, looked = device.api.fill, threading.Event(), threading.Event()
    in_time = list[bool]()

    def slow(*arguments: Any) -> None:
        begun.set()
        in_time.append(looked.wait(2))
        fill(*arguments)

    monkeypatch.setattr(device.api, "fill", slow)
    queue.wait(gate)
    done = x.fill(5, queue=queue)
    gate.set()
    assert begun.wait(20)
    queue.look()
    looked.set()
    assert done.wait(20) and in_time == [True]


def test_Q6_a_queue_that_two_threads_close_is_destroyed_once(
    device: hal.Compiled, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, both, stale = device.queue(), threading.Barrier(2), simulator.stale()
    monkeypatch.setattr(queue, "synchronize", lambda: both.wait(20))
    threads = [threading.Thread(target=queue.close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert queue.closed and simulator.stale() == stale


def test_B9_an_export_asks_nothing_of_a_queue_that_is_closed_meanwhile(
    device: hal.Compiled, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, x, stale = device.queue(), ints(device, 1), simulator.stale()
    done = x.fill(5, queue=queue)
    device.call("test", device.api.wait, queue.stream)
    look = queue.look

    def export() -> None:  # of another thread, which had seen it open
        assert queue.precede(device.stream)
        look()

    monkeypatch.setattr(queue, "synchronize", lambda: True)
    monkeypatch.setattr(queue, "look", export)
    queue.close()
    assert done.wait(20) and simulator.stale() == stale


@pytest.mark.parametrize(
    ("call", "method"),
    [("synchronize", "_synchronize"), ("queue", "_has_work"), ("close", "_record")],
)
def test_Q6_a_queue_that_another_thread_closes_ends_no_call_of_the_device(
    device: hal.Compiled, monkeypatch: pytest.MonkeyPatch, call: str, method: str
) -> None:
    queue, record = device.queue(), device.queue().record()
    x, begin = ints(device, 1), getattr(queue, method)
    queue.wait(record)
    x.fill(5, queue=queue)
    assert record.wait(20)

    def close_first(*given: Any) -> object:
        monkeypatch.setattr(queue, method, begin)
        queue.close()
        return begin(*given)

    monkeypatch.setattr(queue, method, close_first)
    getattr(device, call)()
    assert queue.closed


def test_P10_a_graph_is_given_no_kernel_that_another_thread_unloads_meanwhile(
    device: hal.Compiled, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, (x, y) = device.compile(twofold.lower()), (ints(device, 1), ints(device, 0))
    with device.capture() as graph:
        program(y, x, vals=(N,), threads=N)
    make, stale = device.api.make_graph, simulator.stale()
    unload = threading.Thread(target=program.unload)

    def unload_first() -> Any:
        unload.start()
        unload.join(0.5)
        return make()

    monkeypatch.setattr(device.api, "make_graph", unload_first)
    with pytest.raises(hal.InvalidState, match="unloaded"):
        graph.replay()
    unload.join(20)
    assert simulator.stale() == stale


def test_Q4_a_queue_that_is_dropped_while_its_device_lists_it_is_destroyed_once(
    device: hal.Compiled, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weak references find an object until its finalizer has ended."""
    queue, x, made, stale = device.queue(), ints(device, 1), queues.Dropped, simulator.stale()
    x.fill(5, queue=queue)
    found = weakref.ref(queue)

    def drop(*given: Any) -> Any:
        known = found()
        end = made(*given)
        assert known is not None and end._reached(20)
        thread = threading.Thread(target=known._stop)
        thread.start()
        thread.join(20)
        return end

    monkeypatch.setattr(queues, "Dropped", drop)
    del queue
    assert device.synchronize(20) and not device._ends
    assert simulator.stale() == stale and x.numpy().tolist() == [5] * N


def test_Q4_a_queue_that_is_made_and_dropped_while_its_device_closes_is_waited_for(
    device: hal.Compiled, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device has looked for its queues by then."""
    wait, stale, x = device.api.wait, simulator.stale(), ints(device, 1)
    device.synchronize()
    simulator.retain_contexts(1)  # destroying it would hide what is left there
    before = simulator.live()["streams"]
    lease, idle = weakref.ref(x._share()), list[bool]()

    def make_one(stream: Any) -> None:
        monkeypatch.setattr(device.api, "wait", wait)
        simulator.shuffle(1)  # nothing is done while nobody waits
        queue = device.queue()
        for value in range(50):
            x.fill(value, queue=queue)
        x.deallocate()
        wait(stream)

    monkeypatch.setattr(device.api, "wait", make_one)
    destroy = device.api.destroy_stream

    def see(stream: Any) -> None:
        idle.append(device.api.is_done(stream))
        destroy(stream)

    monkeypatch.setattr(device.api, "destroy_stream", see)
    device.close()
    simulator.shuffle(0)
    left = simulator.live()["streams"]
    simulator.release_contexts(1)
    assert idle == [True, True] and left == before - 1
    assert lease() is None and simulator.stale() == stale

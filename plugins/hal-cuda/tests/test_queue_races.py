"""Queues that several threads use at once, and that end in the middle of their work."""

import threading

import numpy as np
import pytest
from any_order import N, twofold
from in_threads import results

import hal_core as hal


def ints(device, value):
    return hal.Buffer.from_numpy(np.full(N, value, "i4"), device)


def test_Q5_work_before_a_failure_does_not_fail_with_it(device, simulator):
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


def test_Q6_a_queue_that_two_threads_close_is_destroyed_once(device, simulator, monkeypatch):
    queue, both, stale = device.queue(), threading.Barrier(2), simulator.stale()
    monkeypatch.setattr(queue, "synchronize", lambda: both.wait(20))
    results(queue.close, queue.close)
    assert queue.closed and simulator.stale() == stale


def test_P10_a_graph_is_given_no_kernel_that_another_thread_unloads_meanwhile(
    device, simulator, monkeypatch
):
    program, (x, y) = device.compile(twofold.lower()), (ints(device, 1), ints(device, 0))
    with device.capture() as graph:
        program(y, x, vals=(N,), threads=N)
    make, stale = device.api.make_graph, simulator.stale()
    unload = threading.Thread(target=program.unload)

    def unload_first():
        unload.start()
        unload.join(0.5)
        return make()

    monkeypatch.setattr(device.api, "make_graph", unload_first)
    with pytest.raises(hal.InvalidState, match="unloaded"):
        graph.replay()
    unload.join(20)
    assert simulator.stale() == stale


def test_Q4_a_queue_that_is_made_and_dropped_while_its_device_closes_is_waited_for(
    device, simulator, monkeypatch
):
    """The device has looked for its queues by then."""
    wait, stale, x = device.api.wait, simulator.stale(), ints(device, 1)
    device.synchronize()
    simulator.retain_contexts(1)  # destroying it would hide what is left there
    before = simulator.live()["streams"]
    idle = list[bool]()

    def make_one(stream):
        monkeypatch.setattr(device.api, "wait", wait)
        simulator.shuffle(1)  # nothing is done while nobody waits
        queue = device.queue()
        for value in range(50):
            x.fill(value, queue=queue)
        x.deallocate()
        wait(stream)

    monkeypatch.setattr(device.api, "wait", make_one)
    destroy = device.api.destroy_stream

    def see(stream):
        idle.append(device.api.is_done(stream))
        destroy(stream)

    monkeypatch.setattr(device.api, "destroy_stream", see)
    device.close()
    simulator.shuffle(0)
    left = simulator.live()["streams"]
    simulator.release_contexts(1)
    # Its own stream, the queue's, and those of queues that earlier tests have left.
    assert len(idle) >= 2 and all(idle) and left == before + 1 - len(idle)
    assert simulator.stale() == stale

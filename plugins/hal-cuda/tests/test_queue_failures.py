"""Queues and graphs of streams where something fails in the middle, or goes in a wrong order."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from any_order import N, twofold
from simulator import Simulator

import hal_core as hal


@hal.kernel
def put(y: hal.Ptr[hal.float32], v: hal.float32, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = v


def ints(device: hal.Compiled, value: int) -> hal.Buffer:
    return hal.Buffer.from_numpy(np.full(N, value, "i4"), device)


def test_G2_a_replay_that_was_refused_half_way_leaves_nothing_half_set(
    device: hal.Compiled, simulator: Simulator
) -> None:
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


def test_G2_minus_zero_is_another_value(device: hal.Compiled) -> None:
    y = hal.zeros(N, hal.float32, device)
    with device.capture() as graph:
        device.compile(put)(y, vals=(0.0, N), threads=N)
    graph.replay()
    graph[0].update(vals=(-0.0, N))
    graph.replay()
    assert np.signbit(y.numpy()).all()


@pytest.mark.parametrize("gate_is_first", [True, False])
def test_Q3_a_copyin_reads_what_an_earlier_copyout_has_still_to_write(
    device: hal.Compiled, simulator: Simulator, gate_is_first: bool
) -> None:
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


def test_Q1_a_copyout_of_the_default_queue_is_over_when_the_device_is(
    device: hal.Compiled, simulator: Simulator
) -> None:
    queue, host = device.default_queue, np.zeros(N, "i4")
    x, y = ints(device, 7), ints(device, 1)
    simulator.shuffle(1)
    x.copyout(host, queue=queue)
    y.copyin(host, queue=queue)
    y.fill(9)
    device.synchronize()
    simulator.shuffle(0)
    assert host.tolist() == [7] * N and y.numpy().tolist() == [9] * N


def test_Q4_memory_of_a_copy_that_failed_half_way_is_kept_until_the_half_is_done(
    device: hal.Compiled, simulator: Simulator
) -> None:
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
    gc.collect()
    assert lease() is None


def test_Q6_the_owner_of_a_borrowed_stream_lives_until_its_work_is_done(
    device: hal.Compiled, simulator: Simulator
) -> None:
    class Owner:
        def __init__(self) -> None:
            with device.own("test"):
                self.handle = device.api.make_stream(independent=True)

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, int(self.handle)

        def __del__(self) -> None:
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


def test_P10_closing_a_queue_while_others_launch_in_it(
    device: hal.Compiled, simulator: Simulator
) -> None:
    program, x, y = device.compile(twofold), ints(device, 1), ints(device, 0)
    stale = simulator.stale()
    for _ in range(10):
        queue, raised = device.queue(), list[type]()

        def launch() -> None:
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


def test_Q6_the_per_thread_stream_is_refused(device: hal.Compiled) -> None:
    with pytest.raises(hal.InvalidArgument, match="another one in each thread"):
        hal.Queue.wrap(2, device)

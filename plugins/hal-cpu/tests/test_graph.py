"""Graphs as one call of machine code on all cores."""

import gc
import threading
from functools import partial

import numpy as np
import pytest
from in_threads import results

import hal_core as hal
from hal_cpu import graph as native
from hal_testing.conformance import test_graph as kit

N = 5000


@hal.kernel
def smooth(b: hal.Ptr[hal.float32], a: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if 0 < i < n - 1:
        b[i] = 0.25 * a[i - 1] + 0.5 * a[i] + 0.25 * a[i + 1]


@pytest.fixture
def device():
    return hal.Device["CPU"]


def steps(device, count, kernel=smooth):
    start = np.random.default_rng(1).random(N, "f4")
    a, b = hal.Buffer.from_numpy(start, device), hal.Buffer.from_numpy(start, device)
    program = device.compile(kernel)
    with device.capture() as graph:
        for _ in range(count):
            program(b, a, vals=(N,), threads=N, block=64)
            program(a, b, vals=(N,), threads=N, block=64)
    return graph, a, b


@pytest.mark.parametrize("split_from", [1, 1 << 60], ids=["split", "whole"])
def test_G6_large_sequences(split_from, device, monkeypatch):
    shared(monkeypatch, split_from)
    monkeypatch.setattr(kit, "N", 3000)
    for seed in range(1000, 1040):
        kit.check_sequence(device, seed)


def shared(monkeypatch, split_from=1):
    """Cut every step for all cores, and let them take part in each replay."""
    monkeypatch.setattr(native, "SPLIT_FROM", split_from)
    monkeypatch.setattr(native, "SHARED_FROM", 0)


@pytest.fixture
def opened(request, monkeypatch):
    """A device of so many threads, whose replays they share."""
    monkeypatch.setenv("HAL_CPU_THREADS", request.param)
    shared(monkeypatch)
    hal.Device["CPU"].close()
    yield hal.Device["CPU"]
    hal.Device["CPU"].close()


@pytest.mark.parametrize("opened", ["4"], indirect=True)
def test_G3_cores_that_never_come_are_not_missed(opened, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    graph, a, _ = steps(opened, 5)
    graph.replay()
    program = opened.compile(smooth)
    start = np.random.default_rng(1).random(N, "f4")
    b, wanted = (hal.Buffer.from_numpy(start, opened) for _ in range(2))
    for _ in range(5):
        program(b, wanted, vals=(N,), threads=N, block=64)
        program(wanted, b, vals=(N,), threads=N, block=64)
    assert np.array_equal(a.numpy(), wanted.numpy())


def test_G5_replays_of_several_threads_have_counters_of_their_own(device, monkeypatch):
    shared(monkeypatch)
    graphs = [steps(device, 20) for _ in range(4)]
    expected, a, _ = graphs[0]
    for _ in range(10):
        expected.replay()
    wanted = a.numpy()

    def work(graph):
        for _ in range(10):
            graph.replay()

    results(*(partial(work, graph) for graph, _, _ in graphs[1:]))
    assert all(np.array_equal(one[1].numpy(), wanted) for one in graphs[1:])


@pytest.mark.parametrize("opened", ["8"], indirect=True)
def test_G3_more_threads_than_cores_do_not_hang(opened):
    """Cores that wait yield to those that work."""
    graph, a, _ = steps(opened, 100)
    graph.replay()
    assert np.isfinite(a.numpy()).all()


def test_A7_memory_that_another_thread_frees_during_a_replay(device):
    graph, a, b = steps(device, 2000)
    graph.replay()
    thread = threading.Thread(target=graph.replay)
    thread.start()
    a.deallocate()
    others = [hal.zeros(N, hal.float32, device) for _ in range(4)]
    thread.join(30)
    assert not any(one.numpy().any() for one in others)
    assert np.isfinite(b.numpy()).all()


def test_G2_code_of_a_dropped_program_stays(device):
    graph, a, _ = steps(device, 2, smooth.lower())  # of which nothing else knows
    graph.replay()
    gc.collect()
    graph.replay()
    graph[0].program.unload()
    before = a.numpy()
    with pytest.raises(hal.InvalidState, match="unloaded"):
        graph.replay()
    assert np.array_equal(a.numpy(), before)


def test_Q5_a_launch_that_fails_in_the_middle_of_a_replay(monkeypatch):
    """Steps before it have run, steps behind it have not, and the graph can run again."""
    monkeypatch.setenv("HAL_CHECK", "1")
    hal.Device["CPU"].close()
    try:
        with hal.Device["CPU"] as device:
            a, b, small = (hal.zeros(size, hal.float32, device) for size in (N, N, N - 2))
            graph = hal.Graph(device)
            graph.fill(a, 1)
            node = graph.add(device.compile(smooth), b, a, vals=(N,), threads=N)
            graph.fill(b, 5)
            node.update(small, a)
            with pytest.raises(hal.OutOfBounds, match="smooth"):
                graph.replay()
            assert a.numpy().all() and not b.numpy().any()
            a.fill(0)
            queue = device.queue()
            event = graph.replay(queue=queue)
            for wait in (event.wait, queue.synchronize):
                with pytest.raises(
                    hal.DeviceFault, match=r"replay of a graph failed.*smooth.*boun"
                ):
                    wait()
            assert a.numpy().all() and not b.numpy().any()
            node.update(b, a)
            graph.replay(queue=device.queue()).wait(30)
            assert (b.numpy() == 5).all()
    finally:
        monkeypatch.undo()


def test_P10_a_queue_keeps_the_code_of_a_program_that_is_unloaded(device):
    graph, a, _ = steps(device, 1)
    again, other, _ = steps(device, 1)
    program, gate = again[0].program, hal.Event()
    assert program is not None
    with device.queue() as queue:
        queue.wait(gate)
        again.replay(queue=queue)
        for node in again:
            program(*node.bufs, *node.vals, threads=N, block=64, queue=queue)
        program.unload()
        gate.set()
    program = device.compile(smooth)
    for _ in range(2):
        for node in graph:
            program(*node.bufs, *node.vals, threads=N, block=64)
    assert np.array_equal(other.numpy(), a.numpy())

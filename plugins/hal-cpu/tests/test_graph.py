"""Graphs as one call of machine code on all cores."""

from __future__ import annotations

import ctypes
import gc
import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hal_core as hal
from hal_core.graph.plan import Plan
from hal_cpu import graph as native
from hal_testing.conformance import test_graph as kit

N = 5000


@hal.kernel
def smooth(b: hal.Ptr[hal.float32], a: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if 0 < i < n - 1:
        b[i] = 0.25 * a[i - 1] + 0.5 * a[i] + 0.25 * a[i + 1]


@pytest.fixture
def device() -> hal.Compiled:
    return hal.Device["CPU"]


def steps(device: hal.Compiled, count: int) -> tuple[hal.Graph, hal.Buffer, hal.Buffer]:
    start = np.random.default_rng(1).random(N, "f4")
    a, b = hal.Buffer.from_numpy(start, device), hal.Buffer.from_numpy(start, device)
    program = device.compile(smooth)
    with device.capture() as graph:
        for _ in range(count):
            program(b, a, vals=(N,), threads=N, block=64)
            program(a, b, vals=(N,), threads=N, block=64)
    return graph, a, b


@pytest.mark.parametrize("split_from", [1, 1 << 60], ids=["split", "whole"])
def test_G6_large_sequences(
    split_from: int, device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "SPLIT_FROM", split_from)
    monkeypatch.setattr(native, "SHARED_FROM", 0)
    monkeypatch.setattr(kit, "N", 3000)
    for seed in range(1000, 1040):
        kit.check_sequence(device, seed)


def test_G3_a_replay_is_one_native_call(device: hal.Compiled) -> None:
    graph, a, _ = steps(device, 3)
    graph.replay()
    assert graph._plan is not None and isinstance(graph._plan._native, native.NativeReplay)
    once = a.numpy()
    with hal.profile() as profile:  # which sees each step
        graph.replay()
    assert [event.kind for event in profile.events].count("launch") == 6
    assert not np.array_equal(a.numpy(), once)


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[hal.Compiled]:
    monkeypatch.setenv("HAL_CPU_THREADS", "4")
    hal.Device["CPU"].close()
    yield hal.Device["CPU"]
    hal.Device["CPU"].close()


def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut every step for all cores, and let them take part in each replay."""
    monkeypatch.setattr(native, "SPLIT_FROM", 1)
    monkeypatch.setattr(native, "SHARED_FROM", 0)


def native_of(graph: hal.Graph) -> native.NativeReplay:
    graph.replay()
    assert graph._plan is not None
    made = graph._plan._native
    assert isinstance(made, native.NativeReplay)
    return made


@pytest.mark.parametrize("core", range(4))
def test_G3_cores_that_never_come_are_not_missed(
    core: int, four_threads: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One core alone does the tasks of all; those that come later do none again."""
    shared(monkeypatch)
    graph, a, _ = steps(four_threads, 5)
    other, wanted, _ = steps(four_threads, 5)
    replay = native_of(graph)
    assert len(replay._chunks) == 4
    state = ctypes.create_string_buffer(64 * 8)
    start = (ctypes.addressof(state) + 63) & -64
    args = struct.pack("@2Q", ctypes.addressof(replay._plan), start)
    for number in (core, 0, 3):
        replay._function(args, None, *replay._chunks[number])
    for _ in range(2):
        other.replay()
    assert np.array_equal(a.numpy(), wanted.numpy())


def test_G3_a_replay_leads_the_team_that_shares_launches(
    four_threads: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers look for it in machine code; none has to be called by Python."""
    shared(monkeypatch)
    graph, _, _ = steps(four_threads, 5)
    replay, led = native_of(graph), []
    team: Any = four_threads.pool._team  # type: ignore[attr-defined]
    lead = team.lead
    monkeypatch.setattr(team, "lead", lambda *call: (led.append(call), lead(*call))[1])
    graph.replay()
    assert len(led) == 1 and led[0][0] == replay._kept[0]["hal_graph"].entry


def test_G3_steps_without_an_order_are_dealt_to_the_cores(
    four_threads: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of six launches is worth a cut; all six together are worth three cores."""
    program, n = four_threads.compile(smooth), 64
    bufs = [hal.zeros(n, hal.float32, four_threads) for _ in range(12)]
    with four_threads.capture() as graph:
        for b, a in zip(bufs[::2], bufs[1::2], strict=True):
            program(b, a, vals=(n,), threads=n, block=16)
    work = program.binary.interface.work * n
    for worth, shares in ((work, [2, 2, 1, 1]), (2 * work, [2, 2, 2]), (30 * work, [6])):
        monkeypatch.setattr(native, "SPLIT_FROM", 2 * worth)
        steps = Plan(four_threads, graph.nodes, None).steps
        found = native.NativeReplay(four_threads, steps)._shares(steps)  # type: ignore[arg-type]
        assert [len(share) for share in found] == shares


@pytest.mark.parametrize(("times", "best"), [((3.0, 1.0), 1), ((1.0, 3.0), 0)])
def test_the_faster_way_is_found_and_the_other_tried_rarely(
    times: tuple[float, float], best: int
) -> None:
    ways, gone = native.Faster(), []
    for turn in range(1000):
        gone.append(ways.choose())
        slow_chance = 50.0 if turn == 7 else 0.0
        ways.note(gone[-1], times[gone[-1]] + slow_chance)
    assert gone[:2] == [0, 1], "both are tried at once"
    assert 3 <= gone.count(1 - best) <= 1000 // (3 * 32) + 3 + 3
    after = list[int]()
    for _ in range(1000):  # now the other one is faster
        after.append(ways.choose())
        ways.note(after[-1], times[1 - after[-1]])
    assert after[-100:].count(1 - best) > 90


@pytest.mark.parametrize("way", [0, 1])
def test_G3_small_phases_run_as_is_faster(
    way: int, four_threads: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(monkeypatch)
    (graph, a, _), (other, wanted, _) = steps(four_threads, 5), steps(four_threads, 5)
    native_of(graph)
    assert graph._plan is not None
    monkeypatch.setattr(native.Faster, "choose", lambda self: way)
    ran, pool = [], four_threads.pool  # type: ignore[attr-defined]
    run = pool.run
    monkeypatch.setattr(pool, "run", lambda *call: (ran.append(call), run(*call)))
    for limit, runs in ((1 << 60, 1 - way), (0, 1)):
        monkeypatch.setattr(native, "SHARED_FROM", limit)
        replay: Any = native.native_replay(four_threads, graph._plan.steps)
        ran.clear()
        replay()
        assert len(ran) == runs
    for _ in range(3):
        other.replay()
    assert np.array_equal(a.numpy(), wanted.numpy())


def test_G5_replays_of_several_threads_have_counters_of_their_own(
    device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(monkeypatch)
    graphs = [steps(device, 20) for _ in range(4)]
    expected, a, _ = graphs[0]
    for _ in range(10):
        expected.replay()
    wanted, failed = a.numpy(), []

    def work(graph: hal.Graph) -> None:
        try:
            for _ in range(10):
                graph.replay()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(one[0],)) for one in graphs[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failed and not any(thread.is_alive() for thread in threads)
    assert all(np.array_equal(one[1].numpy(), wanted) for one in graphs[1:])


def test_G3_more_threads_than_cores_do_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores that wait yield to those that work."""
    monkeypatch.setenv("HAL_CPU_THREADS", "8")
    shared(monkeypatch)
    hal.Device["CPU"].close()
    try:
        graph, a, _ = steps(hal.Device["CPU"], 100)
        graph.replay()
        assert np.isfinite(a.numpy()).all()
    finally:
        hal.Device["CPU"].close()


def test_A7_memory_that_another_thread_frees_during_a_replay(device: hal.Compiled) -> None:
    graph, a, b = steps(device, 2000)
    graph.replay()
    thread = threading.Thread(target=graph.replay)
    thread.start()
    a.deallocate()
    others = [hal.zeros(N, hal.float32, device) for _ in range(4)]
    thread.join(30)
    assert not any(one.numpy().any() for one in others)
    assert np.isfinite(b.numpy()).all()


def test_G2_code_of_a_dropped_program_stays(device: hal.Compiled) -> None:
    graph, a, _ = steps(device, 2)
    graph.replay()
    device._programs.clear()
    gc.collect()
    graph.replay()
    graph[0].program.unload()  # type: ignore[union-attr]
    before = a.numpy()
    with pytest.raises(hal.InvalidState, match="unloaded"):
        graph.replay()
    assert np.array_equal(a.numpy(), before)


def test_Q5_a_launch_that_fails_in_the_middle_of_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
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

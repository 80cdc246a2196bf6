"""Replay by command buffers of the driver: what it takes, when it is left, what it keeps."""

import gc
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from kernel_files import add

import hal_core as hal
from hal_opencl import graph as native
from hal_opencl.command_buffer import CommandBuffer, calls_of
from hal_opencl.driver import cl

N = 64


@hal.kernel
def turned(y: hal.Ptr[hal.int32]) -> None:
    t = hal.shared(hal.int32, N)
    i = hal.thread_idx(0)
    t[i] = y[i]
    hal.barrier()
    y[i] = t[N - 1 - i]


TEXT = """__kernel void twice(__global int *y) { y[get_global_id(0)] *= 2; }"""


def twice(device):
    return device.compile(hal.Source("twice", TEXT, "y: int32*", language="opencl"))


@pytest.fixture
def buffered(device):
    if calls_of(device.hardware) is None:
        pytest.skip("the driver has no cl_khr_command_buffer of version 0.9.0 to 0.9.4")
    return device


def numbers(device):
    return hal.Buffer.from_numpy(np.arange(N, dtype="i4"), device)


def all_kinds(device, y, spare):
    """Do work of every kind: launches with values, offsets, whole blocks and source; copies."""
    device.compile(add)(y, vals=(3, N), threads=N)
    device.compile(add)(y.view(N // 2, offset=4 * (N // 2)), vals=(5, N // 2), threads=N)
    device.compile(turned)(y, grid=1, block=N)
    spare.copy_from(y)
    twice(device)(spare, threads=N)
    half = spare.view(N // 2)
    spare.view(N // 2, offset=8).copy_from(half)
    spare.view(4, offset=16).fill(-1)
    spare.view(2).copyin(np.array([7, 8], "i4"))
    y.view(N // 4, offset=4 * (N // 4)).copy_from(spare.view(N // 4))


def test_G6_a_command_buffer_does_what_the_steps_do(buffered):
    y, spare = numbers(buffered), numbers(buffered)
    for _ in range(3):
        all_kinds(buffered, y, spare)
    expected = [y.numpy().tolist(), spare.numpy().tolist()]
    y, spare = numbers(buffered), numbers(buffered)
    with buffered.capture() as graph:
        all_kinds(buffered, y, spare)
    for queue in (None, buffered.queue(), buffered.default_queue):
        done = graph.replay(queue=queue) if queue else graph.replay()
        assert buffered.synchronize(20) if done is None else done.wait(20)
    assert isinstance(graph._plan.native(), native.Replay)
    assert [y.numpy().tolist(), spare.numpy().tolist()] == expected


def test_G6_a_replay_makes_as_many_calls_for_many_nodes_as_for_two(buffered):
    program, y, counts = buffered.compile(add), numbers(buffered), list[int]()

    def count(frame, what, _):
        counts[-1] += what in ("call", "c_call")

    for nodes in (2, 200):
        with buffered.capture() as graph:
            for _ in range(nodes):
                program(y, vals=(1, N), threads=N)
        graph.replay(wait=True)  # records the commands
        counts.append(0)
        sys.setprofile(count)
        try:
            graph.replay()
        finally:
            sys.setprofile(None)
        buffered.synchronize()
    assert counts[0] == counts[1] < 30
    assert y.numpy().tolist() == [k + 2 * 202 for k in range(N)]


def test_Q4_what_a_replay_needs_stays_until_it_is_done(buffered):
    program = buffered.compile(add)
    gate = hal.Event()
    queue = buffered.queue().wait(gate)
    kept = numbers(buffered)
    for turn in range(20):
        y = numbers(buffered)
        with buffered.capture() as graph:
            program(y, vals=(turn, N), threads=N)
            kept.copy_from(y)
        graph.replay()
        graph.replay(queue=queue)
        del graph, y
    gc.collect()
    gate.set()
    assert queue.synchronize(20)
    assert kept.numpy().tolist() == [i + 2 * 19 for i in range(N)]
    assert buffered.synchronize() and buffered.replays == []


@pytest.mark.parametrize("version", [None, (1, 0, 0), (0, 9, 5)])
def test_G6_without_command_buffers_of_a_known_form_the_steps_run(device, monkeypatch, version):
    versions = []
    if version:
        number = version[0] << 22 | version[1] << 12 | version[2]
        versions = [SimpleNamespace(name="cl_khr_command_buffer", version=number)]
    other = SimpleNamespace(extensions_with_version=versions)
    assert calls_of(other) is None
    monkeypatch.setattr(native, "calls_of", lambda _device: calls_of(other))
    y, spare = numbers(device), numbers(device)
    all_kinds(device, y, spare)
    expected = [y.numpy().tolist(), spare.numpy().tolist()]
    y, spare = numbers(device), numbers(device)
    with device.capture() as graph:
        all_kinds(device, y, spare)
    graph.replay()
    assert graph._plan.native() is None
    assert [y.numpy().tolist(), spare.numpy().tolist()] == expected


def test_a_refused_command_names_the_call_and_leaves_nothing(buffered):
    calls = calls_of(buffered.hardware)
    assert calls is not None
    recorded = CommandBuffer(calls, buffered.commands)
    memory = numbers(buffered)._buf
    with pytest.raises(cl.Error, match="clCommandFillBufferKHR"):
        recorded.add_fill((memory[0], 1 << 40), b"\0", 4)
    with pytest.raises(cl.Error, match="clEnqueueCommandBufferKHR"):
        recorded.enqueue(buffered.commands)  # it was never finished

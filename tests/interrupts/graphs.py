"""Graphs: captured, replayed, changed, saved and loaded."""

from ctrl_c import Scene, expect
from interrupts.kernels import assert_adds, made
from interrupts.memory import NewFile
from interrupts.queues import assert_in_order

import hal_core as hal
from hal_core.queue import captures


def captured(device):
    x, y, program = *_pair(device), device.compile(made())
    y.fill(7)
    graphs = []

    def work():
        with device.capture() as graph:
            _record(program, x, y)
        graphs.append(graph)

    def check(heard):
        expect(not captures, "the capture goes on")
        expect(y.numpy().tolist() == [7] * 64, "something ran")
        assert_adds(program)
        for graph in (*graphs, _graph(device, program, x, y)):
            assert_replays(graph, x, y)

    return Scene(work, check)


def replayed(device):
    """Replays on the default queue and on another, with other buffers, and after a change."""
    x, y, program, queue = *_pair(device), device.compile(made()), device.queue()
    graph, other = _graph(device, program, x, y), hal.zeros(64, hal.int32, device)

    def work():
        graph.replay()
        graph.replay({y: other})
        graph.replay(queue=queue).wait()
        graph.replay(wait=True)
        graph[2].update(vals=(32,))
        graph.replay()
        graph[2].update(vals=(64,))
        graph.replay()

    def check(heard):
        graph[2].update(vals=(64,))
        queue.synchronize()  # Ctrl-C in its wait leaves a replay there, which writes y
        assert_replays(graph, x, y)
        assert_in_order(device, queue)
        graph.replay({y: other}, queue=queue).wait()
        expect(other.numpy().tolist() == [5] * 64, "the replay after it is wrong")
        queue.close()

    return Scene(work, check)


def saved(device):
    """A file that was there is replaced as a whole, or not at all."""
    file = NewFile("steps.graph")
    path = file.path
    x, y, program = *_pair(device), device.compile(made())
    graph = _graph(device, program, x, y)
    graph.save(path)

    def work():
        graph.save(path)
        hal.load_graph(path, device).replay()

    def check(heard):
        loaded = hal.load_graph(path, device)
        assert_replays(loaded, *loaded.buffers)
        file.check()
        assert_replays(graph, x, y)

    return Scene(work, check)


def _pair(device):
    return hal.zeros(64, hal.int32, device), hal.zeros(64, hal.int32, device)


def _record(program, x, y):
    x.fill(3)
    y.copyin(b"\2\0\0\0" * 64)
    program(y, x, vals=(64,), threads=64)


def _graph(device, program, x, y):
    with device.capture() as graph:
        _record(program, x, y)
    return graph


def assert_replays(graph, x, y):
    y.fill(0)
    graph.replay()
    expect(y.numpy().tolist() == [5] * 64, "the replay after it is wrong")
    expect(x.numpy().tolist() == [3] * 64, "the replay after it is wrong")


SCENES = (captured, replayed, saved)

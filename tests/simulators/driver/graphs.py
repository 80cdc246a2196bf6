"""Tests of graphs that the driver replays; a plugin's test_graph.py imports them.

`calls` counts the driver's calls of a piece of work by their names without prefix.
"""

import gc

import numpy as np
from any_order import SEEDS, N, expect, twofold

import hal_core as hal


def ints(device, value=0):
    return hal.Buffer.from_numpy(np.full(N, value, np.int32), device)


def test_G3_a_replay_is_one_call(device, calls):
    x, y = ints(device, 3), ints(device)
    program = device.compile(twofold)
    with device.capture() as graph:
        for _ in range(5):
            program(y, x, vals=(N,), threads=N)
            x.copy_from(y)
        y.fill(7)
    graph.replay()
    expect(calls(graph.replay) == {"GraphLaunch": 1})
    queue = device.queue()
    graph.replay(queue=queue).wait()
    found = calls(lambda: graph.replay(queue=queue))
    expect(found.pop("GraphLaunch") == 1 and not any("Launch" in name for name in found))
    expect(queue.synchronize(20) and x.numpy().tolist() == [3 << 20] * N)


def test_G2_a_change_is_one_call_for_each_node(device, calls):
    x, y, z = ints(device, 3), ints(device), ints(device)
    program = device.compile(twofold)
    with device.capture() as graph:
        y.fill(1)
        program(y, x, vals=(N,), threads=N)
        z.copy_from(y)
    graph.replay()
    other = ints(device, 5)
    found = calls(lambda: graph.replay({x: other}))
    expect(_graph(found) == {"GraphExecKernelNodeSetParams": 1, "GraphLaunch": 1}, str(found))
    expect(z.numpy().tolist() == [10] * N)
    expect(_graph(calls(lambda: graph.replay({x: other}))) == {"GraphLaunch": 1})
    again = ints(device)
    found = calls(lambda: graph.replay({y: again}))  # the fill, the launch and the copy
    expect(sum(_graph(found).values()) == 4, str(found))
    expect(z.numpy().tolist() == [6] * N and again.numpy().tolist() == [6] * N)
    graph[1].update(vals=(2,), threads=2)
    found = calls(graph.replay)
    expect("GraphInstantiate" not in str(found), str(found))
    expect(z.numpy().tolist() == [6] * 2 + [1] * (N - 2))


def test_G3_a_graph_takes_memory_of_another_kind(device, calls):
    """The driver does not change where a copy or fill of a graph that is ready has its memory."""
    x, y = ints(device, 3), ints(device)
    pinned = hal.Buffer(device, N, hal.int32, hal.BufferSpec(host=True)).allocate()
    with device.capture() as graph:
        x.fill(5)
        y.copy_from(x)
    for into in (None, {y: pinned}, {y: ints(device)}, {x: pinned}, None):
        graph.replay(into)
        found = calls(lambda into=into: graph.replay(into))
        expect(_graph(found) == {"GraphLaunch": 1}, f"{into}: {found}")
        expect((into or {}).get(y, y).numpy().tolist() == [5] * N, str(into))


def test_G2_another_order_is_another_graph(device):
    x, y, z = ints(device, 3), ints(device, 4), ints(device)
    program = device.compile(twofold)
    with device.capture() as graph:
        program(y, x, vals=(N,), threads=N)
        z.fill(1)
    for _ in range(3):
        graph.replay({z: x})
        graph.replay()
    expect(x.numpy().tolist() == [1] * N and y.numpy().tolist() == [2] * N)


def test_a_graph_without_order_is_found(device, shuffle):
    """Without the dependencies, some order of the nodes gives other numbers."""
    x, y, program = ints(device), ints(device), device.compile(twofold)

    def right(ordered):
        with device.capture() as graph:
            x.fill(4)
            program(y, x, vals=(N,), threads=N)
            x.fill(0)
        if not ordered:
            graph.replay()
            plan = graph._plan
            if plan is not None:
                plan.steps = [step._replace(dependencies=()) for step in plan.steps]
                plan._native_is_made, plan._native = False, None
        graph.replay()
        return y.numpy().tolist() == [8] * N

    found = []
    for seed in SEEDS:
        shuffle(seed)
        expect(right(ordered=True), f"seed {seed}")
        found.append(right(ordered=False))
    expect(not all(found), "no order showed the missing dependencies")


def test_G5_a_held_queue_replays_what_was_asked_for(device):
    """A change between the call and the work concerns later replays alone."""
    x, y, gate, queue = ints(device, 3), ints(device), hal.Event(), device.queue()
    with device.capture() as graph:
        device.compile(twofold)(y, x, vals=(N,), threads=N)
    graph.replay()
    queue.wait(gate)
    event = graph.replay(queue=queue)
    other = ints(device)
    graph.replay({y: other})
    y.fill(0)
    device.synchronize(0)
    gate.set()
    expect(event.wait(20) and y.numpy().tolist() == [6] * N)
    expect(other.numpy().tolist() == [6] * N)


def test_G5_replays_of_one_graph_on_two_queues_run_in_turn(device, shuffle):
    """CUDA does it by itself; by its source the runtime of HIP, up to 6.2 at least, does not."""
    x, other, y = ints(device, 3), ints(device, 5), ints(device)
    with device.capture() as graph:
        device.compile(twofold)(y, x, vals=(N,), threads=N)
    graph.replay()
    first, second = device.queue(), device.queue()
    for seed in SEEDS:
        shuffle(seed)
        graph.replay(queue=first)
        graph.replay({x: other}, queue=second)
        expect(first.synchronize(20) and second.synchronize(20))
        expect(y.numpy().tolist() == [10] * N, f"seed {seed}")
        graph.replay()
        graph.replay({x: other}, queue=first)
        expect(first.synchronize(20) and y.numpy().tolist() == [10] * N, f"seed {seed}")


def test_G2_graphs_leave_nothing(device, live):
    device.close()
    before = live()  # what the driver refused to destroy in other tests is there for good
    device = hal.Device[device.name]
    x, y = ints(device, 3), ints(device)
    with device.capture() as graph:
        device.compile(twofold)(y, x, vals=(N,), threads=N)
        x[4:].copy_from(x[:-4])
        y.copyin(np.arange(N, dtype=np.int32))
    for _ in range(3):
        graph.replay()
        graph.replay({x: ints(device)})
    del graph, x, y
    gc.collect()  # a graph is a cycle
    device.close()
    left = {name: live().get(name, 0) - before.get(name, 0) for name in ("graphs", "execs")}
    expect(not any(left.values()), str(left))


class ClosesItsDevice:
    """An object in a cycle, with others that are finalized when it has closed their device."""

    def __init__(self, device):
        self.device, self.itself = device, self
        self.others = ()

    def __del__(self):
        self.device.close()


def test_G2_what_is_collected_while_its_device_closes_leaves_nothing(device, live):
    """In the middle of a collection by another thread weak references find none of them."""
    device.close()
    gc.collect()  # what other tests have left
    before = live()
    device = hal.Device[device.name]
    closing = ClosesItsDevice(device)
    with device.capture() as graph:
        ints(device, 3).fill(4)
    graph.replay()
    program, x = device.compile(twofold.lower()), ints(device, 3)
    program(ints(device), x, vals=(N,), threads=N)
    device.synchronize()
    closing.others = graph, graph._plan, program, device.queue(), x
    del closing, graph, program, x
    gc.collect()
    expect(device.closed)
    kinds = {"graphs", "execs", "modules", "streams", "events", "blocks", "pools"}
    left = {kind: live().get(kind, 0) - before.get(kind, 0) for kind in kinds}
    expect(not any(left.values()), str(left))


def _graph(found):
    return {name: count for name, count in found.items() if name.startswith("Graph")}

"""The cost of graphs, events, asyncio, queued work, and files."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

import hal_core as hal
from bench import launch
from bench.kernels import Array, Input
from bench.measure import OURS, Effort, Task, call, compare
from bench.report import Row, beside
from bench.sizes import MIB

NODES = 1000
FILE_NBYTES = 256 * MIB


@hal.kernel
def smooth(y: Array, x: Input, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if 0 < i < n - 1:
        y[i] = 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1]


def rows(effort: Effort) -> Iterator[Row]:
    yield from tiny(effort)
    yield stencil(effort)
    yield done(effort)
    yield awaited(effort)
    yield from queued(effort)
    yield file(effort.rarely())


# -- graphs


def tiny(effort: Effort) -> Iterator[Row]:
    """Measure a graph of a thousand tiny kernels, which depend on each other, by the node."""
    device = hal.Device["CPU"]
    buffers = [hal.Buffer.from_numpy(np.ones(launch.COUNT, "f4"), device) for _ in range(3)]
    program = device.compile(launch.add)

    def eager() -> None:
        for _ in range(NODES):
            program(*buffers, vals=(launch.COUNT,), grid=(1, 1, 1), block=(16, 1, 1))

    def captured() -> hal.Graph:
        with device.capture() as graph:
            eager()
        return graph

    graph = captured()
    graph.replay(wait=True)
    tasks = {
        OURS: call(partial(graph.replay, wait=True), NODES),
        "launches": call(eager, NODES),
        "capture": call(captured, NODES),
    }
    times = compare(tasks, effort)
    what = f"graph of {NODES} tiny kernels, replayed, a node"
    yield beside(what, times, "launches", 3.0, name="a launch")
    what = f"graph of {NODES} tiny kernels, captured, a node"
    yield beside(what, times, "launches", 0.33, name="a launch", ours="capture")


def stencil(effort: Effort) -> Row:
    """Measure a thousand dependent steps over 64 KiB."""
    device, n = hal.Device["CPU"], 1 << 14
    a, b = (hal.Buffer.from_numpy(np.ones(n, "f4"), device) for _ in range(2))
    program = device.compile(smooth)

    def eager() -> None:
        for _ in range(NODES // 2):
            program(b, a, vals=(n,), threads=n)
            program(a, b, vals=(n,), threads=n)

    with device.capture() as graph:
        eager()
    graph.replay(wait=True)
    tasks = {OURS: call(partial(graph.replay, wait=True), NODES), "launches": call(eager, NODES)}
    times = compare(tasks, effort)
    return beside(f"graph of {NODES} steps over 64 KiB, a step", times, "launches", 3.0)


# -- events


def done(effort: Effort) -> Row:
    """Measure `event.done` of an event that has happened."""
    device = hal.Device["CPU"]
    event = hal.zeros(16, hal.float32, device).fill(1, queue=device.queue())
    event.wait()
    flag = threading.Event()
    flag.set()
    tasks = {
        OURS: Task("event.done", {"event": event}),
        "is_set": Task("is_set()", {"is_set": flag.is_set}),
    }
    times = compare(tasks, effort)
    return beside("event.done", times, "is_set", None, name="threading.Event.is_set")


def awaited(effort: Effort) -> Row:
    """Measure `await` of an event that has happened, beside the cheapest turn of the loop."""
    device = hal.Device["CPU"]
    event = hal.zeros(16, hal.float32, device).fill(1, queue=device.queue())
    event.wait()

    async def ours() -> None:
        for _ in range(100):
            await event

    async def turns() -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    with asyncio.Runner() as runner:
        tasks = {
            OURS: call(lambda: runner.run(ours()), 100),
            "asyncio.sleep(0)": call(lambda: runner.run(turns()), 100),
        }
        times = compare(tasks, effort)
    return beside("await of an event", times, times.allow("asyncio.sleep(0)", 20e-6), 1.0)


# -- queues


def queued(effort: Effort) -> Iterator[Row]:
    """Measure what a queue takes to put 4 KiB of work behind what it has."""
    device = hal.Device["CPU"]
    queue, buffer = device.queue(), hal.zeros(1024, hal.float32, device)
    names = {"queue": queue, "buffer": buffer, "host": memoryview(bytearray(buffer.nbytes))}
    put = Task("put(None)", {"put": SimpleQueue[None]().put})
    for what, call_of in (("copyin", "copyin(host"), ("fill", "fill(1")):
        ours = Task(f"buffer.{call_of}, queue=queue)", names, after=queue.synchronize)
        times = compare({OURS: ours, "put": put}, effort)
        yield beside(f"{what} of 4 KiB, queued", times, "put", None, name="SimpleQueue.put")


# -- files


def file(effort: Effort) -> Row:
    """Measure reading a file that the system has in memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "numbers"
        np.ones(FILE_NBYTES // 4, "f4").tofile(path)
        device = hal.Device["CPU"]
        kept: list[Any] = [None]

        def keeping(read: Callable[[], Any]) -> Callable[[], None]:
            def run() -> None:
                kept[0] = None  # or the next one would need memory for two
                kept[0] = read()

            return run

        ours = keeping(lambda: hal.Buffer.from_file(path, hal.float32, device=device))
        theirs = keeping(lambda: np.fromfile(path, np.float32))
        times = compare({OURS: call(ours), "np.fromfile": call(theirs)}, effort)
    return beside(f"from_file of {FILE_NBYTES // MIB} MiB", times, "np.fromfile", 0.9)

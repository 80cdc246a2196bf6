"""Checked mode finds accesses of two queues that nothing orders: promise Q7."""

import asyncio
import random
import re
import weakref
from pathlib import Path

import numpy as np
import pytest
from run_python import run

import hal_core as hal
from hal_cpu.checked.order import order
from hal_testing.conformance.kernels import add_one

N = 64
PAGE = Path(__file__).parents[3] / "docs" / "queues.md"


@hal.kernel
def doubled(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2 * x[i]


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setenv("HAL_CHECK", "1")
    monkeypatch.setenv("HAL_CPU_DEVICES", "2")
    hal.Device["CPU"].close()
    hal.Device.refresh()
    return hal.Device["CPU"]


@pytest.fixture(autouse=True)
def closed_afterwards(monkeypatch):
    yield
    for info in hal.Device.devices("CPU"):
        hal.Device[info.name].close()
    monkeypatch.undo()
    hal.Device.refresh()


def test_Q7_a_missing_wait_is_found_and_named(device):
    one, two = device.queue(), device.queue()
    x, y = hal.zeros(N, hal.int32, device), hal.zeros(N, hal.int32, device)
    device.compile(add_one)(x, vals=(N,), threads=N, queue=one)
    with pytest.raises(hal.KernelFault) as caught:
        device.compile(doubled)(y, x, vals=(N,), threads=N, queue=two)
    text = str(caught.value)
    for part in (
        "launch of doubled", "launch of add_one", one.name, two.name, "256 bytes", "reads",
    ):  # fmt: skip
        assert part in text
    assert f"{two.name}.wait(event of {one.name})" in text
    two.wait(one.record())
    device.compile(doubled)(y, x, vals=(N,), threads=N, queue=two)  # nothing was done before
    assert two.synchronize(20) and y.numpy().tolist() == [2] * N


def test_Q7_a_program_that_is_wrong_by_chance_is_found_at_its_first_run(tmp_path):
    """The page's program ends well nearly always, and never in checked mode."""
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(
        r"^```python\n(\"\"\"The launch in .*?)^```", text, re.MULTILINE | re.DOTALL
    )
    (shown,) = re.findall(r"^KernelFault: (.*?) \.\.\. ", text, re.MULTILINE | re.DOTALL)
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    done = run(program, HAL_CHECK="1")
    assert done.returncode == 1 and not done.stdout
    assert shown.replace("\n", " ") in done.stderr and "KernelFault" in done.stderr


def test_Q7_the_host_is_a_queue_like_any_other(device):
    queue, x = device.queue(), hal.zeros(N, hal.int32, device)
    program = device.compile(add_one)
    program(x, vals=(N,), threads=N, queue=queue)
    for early in (
        x.numpy, lambda: x.fill(1), lambda: program(x, vals=(N,), threads=N),
        lambda: x[3:4].copyin(bytes(4)),
    ):  # fmt: skip
        with pytest.raises(hal.KernelFault, match=r"in queue \d of CPU writes, and nothing orders"):
            early()
    queue.synchronize(20)
    assert x.numpy().tolist() == [1] * N


@pytest.mark.parametrize("late", ["recorded", "set"])
def test_Q7_work_behind_an_event_without_a_place_is_no_fault(device, late):
    first, second, event = device.queue(), device.queue(), hal.Event()
    x, program = hal.zeros(N, hal.int32, device), device.compile(add_one)
    second.wait(event)
    for queue in (second, first):
        program(x, vals=(N,), threads=N, queue=queue)
    if late == "recorded":
        first.record(event)
    else:
        first.synchronize(20)
        event.set()
    second.synchronize(20)
    assert x.numpy().tolist() == [2] * N


def _polled(event):
    while not event.done:
        pass


@pytest.mark.parametrize(
    "wait",
    [lambda device, queue, event: event.wait(20), lambda device, queue, event: _polled(event),
     lambda device, queue, event: asyncio.run(_awaited(event)),
     lambda device, queue, event: queue.synchronize(20),
     lambda device, queue, event: device.synchronize(20),
     lambda device, queue, event: queue.close(),
     lambda device, queue, event: device.queue().wait(event).record().wait(20),
     lambda device, queue, event: device.default_queue.wait(event)],
    ids=["wait", "done", "await", "queue", "device", "close", "by another queue", "default queue"],
)  # fmt: skip
def test_Q7_each_way_to_wait_orders_the_host(wait, device):
    queue, x = device.queue(), hal.zeros(N, hal.int32, device)
    event = x.fill(3, queue=queue)
    wait(device, queue, event)
    assert x.numpy().tolist() == [3] * N
    x.fill(4)
    x.fill(5, queue=device.queue())  # after what the host has done


def test_Q7_what_the_host_has_waited_for_is_forgotten(device):
    """So checked mode does not keep the memory of the host."""

    class Bytes(bytearray):
        pass

    queue, x = device.queue(), hal.zeros(N, hal.int32, device)
    for wait in (lambda event: event.wait(20), _polled, lambda event: device.synchronize(20)):
        data = Bytes(4 * N)
        gone = weakref.ref(data)
        wait(x.copyin(data, queue=queue))
        del data
        assert gone() is None


def test_Q7_queues_that_nobody_needs_are_forgotten(device):
    """Each had a clock with the names of all before, so time and memory grew as their square."""
    y = hal.zeros(N, hal.int32, device)
    for number in range(20):
        with device.queue() as queue:
            y.fill(number, queue=queue)
        y.fill(number + 1, queue=device.queue()).wait()  # dropped, and not closed
    with device.queue() as last:
        y.fill(0, queue=last).wait()
        clocks = order._clocks
        assert last.name in clocks and max(len(clocks), *map(len, clocks.values())) <= 3


def test_Q7_memory_of_the_host_counts_too(device):
    one, two, host = device.queue(), device.queue(), np.zeros(N, "i4")
    x, y = hal.zeros(N, hal.int32, device).fill(7), hal.zeros(N, hal.int32, device)
    done = x.copyout(host, queue=one)
    for early in (
        lambda: y.copyin(host, queue=two), lambda: y.copyin(host), lambda: y[:1].copyout(host[5:6]),
        lambda: y[:1].copyin(host[-1:], queue=two),
    ):  # fmt: skip
        with pytest.raises(hal.KernelFault, match=r"bytes that copyout in queue \d of CPU writes"):
            early()
    y.copyin(host.copy(), queue=two)
    two.wait(done)
    y.copyin(host, queue=two)
    assert two.synchronize(20) and y.numpy().tolist() == [7] * N
    y.copyin(host)


def test_Q7_replays_are_compared_before_they_run(device):
    one, two = device.queue(), device.queue()
    x, y = hal.zeros(N, hal.int32, device), hal.zeros(N, hal.int32, device)
    program = device.compile(add_one)
    with device.capture() as graph:
        program(y, vals=(N,), threads=N)
        program(x, vals=(N,), threads=N)
    x.fill(5, queue=one)
    for early in (graph.replay, lambda: graph.replay(queue=two), lambda: graph.replay({y: x})):
        with pytest.raises(
            hal.KernelFault, match=r"launch of node \d in a replay: .* that fill in"
        ):
            early()
    y.fill(3, queue=one)  # two has no part of the replay
    two.wait(one.record())
    event = graph.replay(queue=two)
    with pytest.raises(hal.KernelFault, match="launch of node 0 in a replay in queue"):
        y.fill(0, queue=one)
    event.wait(20)
    assert (x.numpy()[0], y.numpy()[0]) == (6, 4)


def test_Q7_devices_copy_from_each_other(device):
    other = hal.Device["CPU:1"]
    x, y = hal.zeros(N, hal.int32, device), hal.zeros(N, hal.int32, other)
    one, two = device.queue(), other.queue()
    x.fill(4, queue=one)
    with pytest.raises(
        hal.KernelFault, match=r"queue \d of CPU:1 reads 256 bytes that fill in que"
    ):
        y.copy_from(x, queue=two)
    two.wait(one.record())
    y.copy_from(x, queue=two)
    with pytest.raises(hal.KernelFault, match=r"that copy in queue \d of CPU:1 reads"):
        x.fill(5, queue=one)
    device.synchronize(20)  # of which the other device's queue knows nothing
    with pytest.raises(hal.KernelFault, match="default queue writes 256 bytes that copy"):
        x.fill(5)
    other.synchronize(20)
    x.fill(5)
    multi = hal.MultiBuffer([device, other], (4, N), hal.int32).fill(1)
    for shard in multi.reduce("sum").reshard(0).reduce("max").bufs:  # all in order by itself
        assert shard.numpy().tolist() == [4]
    hal.launch(add_one, multi, vals=lambda s: (s.buffer.size,), threads=lambda s: s.buffer.size)
    assert multi.numpy().max() == 2


def test_Q7_random_programs_are_judged_as_their_order_says(device):
    """Each access is compared with a search of all paths from call to call."""
    chance = random.Random(7)
    for _ in range(60):
        x = hal.empty(8, hal.int32, device)
        x.fill(0)
        queues = [device.queue() for _ in range(3)]
        events = []  # and the call after which it comes
        calls = []  # queue, first, last, writes
        before = {0: set(), 1: set(), 2: set()}  # calls that a queue knows of
        known = []
        for _ in range(24):
            queue, step = chance.randrange(3), chance.random()
            if step < 0.25:
                events.append((queues[queue].record(), len(known)))
                known.append(set(before[queue]))
            elif step < 0.5 and events:
                event, place = chance.choice(events)
                queues[queue].wait(event)
                before[queue] |= known[place]
            else:
                first, last = sorted(chance.sample(range(9), 2))
                writes = chance.random() < 0.5
                clash = [
                    number
                    for number, (other, low, high, wrote) in enumerate(calls)
                    if other != queue and low < last and first < high and (wrote or writes)
                    and number not in before[queue]
                ]  # fmt: skip
                part, error = x[first:last], None
                try:
                    if writes:
                        part.fill(1, queue=queues[queue])
                    else:
                        part.copyout(np.empty(last - first, "i4"), queue=queues[queue])
                except hal.KernelFault as fault:
                    error = fault
                assert bool(clash) == (error is not None), (calls, clash, error)
                if not clash:
                    before[queue].add(len(calls))
                    calls.append((queue, first, last, writes))
        device.synchronize(20)


async def _awaited(event):
    await event

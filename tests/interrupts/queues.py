"""Queues, events and awaits: work runs once and in order, and no thread stays."""

import asyncio
import threading

import numpy as np
from ctrl_c import Scene, expect
from interrupts.kernels import assert_adds, made

import hal_core as hal
from hal_core import concurrency

_GOES_SECONDS = 10.0


def large(device):
    """A buffer that an event behind its fill could overtake."""
    count = 1 << (15 if device.info.kind == "interpreter" else 19)
    made = hal.zeros(count, hal.int32, device)
    device.synchronize()  # nothing orders the default queue, which fills it, with others
    return made


def begins(device):
    """The first calls of a queue, and waits, in which no event is lost."""
    queue, x, done = device.queue(), hal.zeros(16, hal.int32, device), []

    def work():
        done.append(x.fill(1, queue=queue))
        done.append(x.fill(2, queue=queue))
        queue.record().wait()
        x.fill(3)
        device.synchronize()

    def check(heard):
        expect(all(event.wait(_GOES_SECONDS) for event in done), "an event is lost")
        assert_in_order(device, queue)
        queue.close()

    return Scene(work, check)


def waits(device):
    """Two queues that wait for each other's events, and for one of the host."""
    first, later, x = device.queue(), device.queue(), hal.zeros(16, hal.int32, device)
    started = hal.Event()

    def work():
        first.wait(started)
        done = x.fill(3, queue=first)
        later.wait(done)
        x.fill(4, queue=later)
        started.set()
        first.wait(later.record())
        first.synchronize()
        device.synchronize()

    def check(heard):
        started.set()
        for queue in (first, later):
            assert_in_order(device, queue)
            queue.close()

    return Scene(work, check)


def copies(device):
    """Copies and launches of a queue."""
    queue, program = device.queue(), device.compile(made())
    x, y = hal.zeros(64, hal.int32, device), hal.zeros(64, hal.int32, device)
    data = np.arange(64, dtype=np.int32)

    def work():
        x.copyin(data, queue=queue)
        y.copy_from(x, queue=queue)
        program(y, x, vals=(64,), threads=64, queue=queue)
        y.copyout(np.empty_like(data), queue=queue).wait()
        program(y, x, vals=(64,), threads=64, queue=queue, wait=True)

    def check(heard):
        assert_in_order(device, queue)
        assert_adds(program)
        queue.close()

    return Scene(work, check)


def awaits(device):
    """Tasks of a loop that await events of a queue and of the host, one of them cancelled."""
    queue, x = device.queue(), large(device)

    async def one(value):
        await x.fill(value, queue=queue)

    async def all_of_them():
        never = asyncio.create_task(_await(hal.Event()))
        await asyncio.gather(one(1), one(2), one(3))
        never.cancel()

    # Not `asyncio.run`, which waits for ever for tasks whose first step Ctrl-C has lost.
    loop = asyncio.new_event_loop()

    def work():
        loop.run_until_complete(all_of_them())

    def check(heard):
        loop.close()
        asyncio.run(one(5))
        expect(int(x.view(1).numpy()[0]) == 5, "an await ends before its work")
        assert_in_order(device, queue)
        queue.close()

    return Scene(work, check)


async def _await(event):
    await event


def closes(device):
    """Queues that are made, used and closed, and one that is dropped with work in it."""
    x = large(device)

    def work():
        with device.queue() as queue:
            x.fill(1, queue=queue)
        dropped = device.queue()
        x.fill(2, queue=dropped)
        del dropped
        device.synchronize()

    def check(heard):
        device.synchronize()
        with device.queue() as queue:
            assert_in_order(device, queue)

    return Scene(work, check)


def drops(device):
    """Work of a queue that is held, on a buffer that is dropped: nobody gets its memory before."""
    queue, gate, made = device.queue(), hal.Event(), [hal.zeros(64, hal.int32, device)]
    device.synchronize()
    queue.wait(gate)

    def check(heard):
        made.clear()
        other = hal.empty(64, hal.int32, device)
        other.fill(3)
        gate.set()
        expect(queue.synchronize(_GOES_SECONDS), "the queue does not end")
        expect(set(other.numpy().tolist()) == {3}, "the work was done in another buffer")
        queue.close()

    def work():
        made[0].fill(7, queue=queue)
        made[0].copyin(np.full(64, 7, "i4"), queue=queue)
        made[0].copyout(np.empty(64, "i4"), queue=queue)

    return Scene(work, check)


def assert_in_order(device, queue):
    """One thread at most serves the queue, and its events come after the work ahead of them."""
    x = large(device)
    for value in range(1, 4):
        x.fill(value, queue=queue)
        queue.record().wait()
        expect(int(x.view(1, offset=x.nbytes - 4).numpy()[0]) == value, "an event came early")
    # One that Ctrl-C has made its owner forget may come, see the other, and go.
    alone = concurrency.poll(lambda: _serving(queue) <= 1, _GOES_SECONDS)
    expect(alone, f"{_serving(queue)} threads serve {queue!r}")


def _serving(queue):
    """Count the threads that run; one without a number never began, as Ctrl-C came before."""
    return sum(one.name == queue.name and one.ident is not None for one in threading.enumerate())


SCENES = (begins, waits, copies, awaits, closes, drops)

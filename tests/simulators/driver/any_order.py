"""Tests of queues over a driver that runs streams in any order that they and their events allow.

A plugin's test_queue.py imports them, and gives the fixture `shuffle`.
"""

import gc
import weakref

import numpy as np
import pytest

import hal_core as hal
from hal_streams.queue import StreamQueue
from hal_testing.conformance.test_graph import check_sequence

N, SEEDS = 64, range(1, 9)


@hal.kernel
def twofold(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2 * x[i]


def expect(holds, problem=""):
    """Fail a test, also under `python -O`."""
    if not holds:
        raise AssertionError(problem)


def pipeline(device, seed):
    """Copy up, double and copy down in three queues; return whether the numbers are right."""
    up, work, down = (device.queue() for _ in range(3))
    program, right = device.compile(twofold), []
    x, y = (hal.empty(N, hal.int32, device) for _ in range(2))
    for turn in range(3):
        data = np.arange(N, dtype=np.int32) + 100 * turn + seed
        found = np.zeros(N, np.int32)
        up.wait(down.record())
        copied = x.copyin(data, queue=up)
        work.wait(copied)
        program(y, x, vals=(N,), threads=N, queue=work)
        down.wait(work.record())
        done = y.copyout(found, queue=down)
        right.append((found, 2 * data, done))
    return all(done.wait(20) and np.array_equal(*pair) for *pair, done in right)


def test_Q1_events_order_streams(device, shuffle):
    for seed in SEEDS:
        shuffle(seed)
        expect(pipeline(device, seed), f"seed {seed}")


@pytest.mark.parametrize("method", ["_wait", "_follow_default"])
def test_a_queue_without_order_is_found(method, device, shuffle, monkeypatch):
    def fresh(seed):
        made = hal.Buffer.from_numpy(np.full(N, seed, np.int32), device)
        twice = hal.zeros(N, hal.int32, device)
        queue = device.queue()
        device.compile(twofold)(twice, made, vals=(N,), threads=N, queue=queue)
        return queue.synchronize(20) and twice.numpy().tolist() == [2 * seed] * N

    work = pipeline if method == "_wait" else lambda _, seed: fresh(seed)
    for seed in SEEDS:
        shuffle(seed)
        expect(work(device, seed))
    monkeypatch.setattr(StreamQueue, method, lambda self, event: None)
    found = []
    for seed in SEEDS:
        shuffle(seed)
        found.append(not work(device, seed))
    expect(any(found), "no order showed the missing wait")


def test_Q4_memory_is_not_used_again_too_early(device, shuffle):
    """Blocks go from the device's stream to queues and back, and from queue to queue."""
    program = device.compile(twofold)
    for seed in SEEDS:
        shuffle(seed)
        queues, found = [device.queue(), device.queue()], []
        for turn in range(6):
            x = hal.Buffer.from_numpy(np.full(N, turn, np.int32), device)
            y, queue = hal.empty(N, hal.int32, device), queues[turn % 2]
            program(y, x, vals=(N,), threads=N, queue=queue)
            result = np.zeros(N, np.int32)
            found.append((turn, result, y.copyout(result, queue=queue)))
            del x, y
        for turn, result, event in found:
            expect(event.wait(20) and result.tolist() == [2 * turn] * N, f"seed {seed}")


def test_G6_sequences_in_any_order(device, shuffle):
    for seed in range(2000, 2012):
        shuffle(1 + seed)
        check_sequence(device, seed)


@pytest.mark.parametrize("nbytes", [64 << 10, (9 << 20) + 1])
def test_Q3_large_copies_go_through_pinned_memory(nbytes, device, shuffle):
    queue, made = device.queue(), hal.empty(nbytes, hal.uint8, device)
    data, found = np.arange(1, nbytes + 1, dtype="u4").astype("u1"), np.zeros(nbytes, "u1")
    shuffle(3)
    made.copyin(data, queue=queue)
    done = made.copyout(found, queue=queue)
    expect(not found.any(), "the copy waits for nobody")
    expect(done.wait(20) and np.array_equal(found, data))
    queue.close()


def test_Q3_a_copy_from_memory_that_the_queue_still_writes_to(device):
    queue, host = device.queue(), np.zeros(N, np.int32)
    x, y = hal.zeros(N, hal.int32, device), hal.zeros(N, hal.int32, device)
    x.fill(7, queue=queue)
    x.copyout(host, queue=queue)
    y.copyin(host, queue=queue)
    expect(queue.synchronize(20) and y.numpy().tolist() == [7] * N)


def pinned(device, nbytes):
    """Return pinned memory of zeros, and the host's array over it."""
    made = hal.Buffer(device, nbytes, hal.uint8, hal.BufferSpec(host=True)).allocate()
    array = np.asarray(made)
    array[:] = 0
    return made, array


def test_Q1_copies_to_one_place_in_pinned_memory_keep_their_order(device, shuffle):
    nbytes = 1 << 20
    memory, array = pinned(device, nbytes)
    small = hal.empty(1024, hal.uint8, device).fill(1)
    large = hal.empty(nbytes, hal.uint8, device).fill(2)
    queue = device.queue()
    shuffle(1)
    small.copyout(array[:1024], queue=queue)
    large.copyout(array, queue=queue)
    device.call("test", device.api.wait, queue.stream)  # before the host comes to look
    expect(queue.synchronize(20) and (array == 2).all())
    small.copyout(array[:1024], queue=queue)
    memory.fill(3, queue=queue)
    device.call("test", device.api.wait, queue.stream)
    expect(queue.synchronize(20) and (array == 3).all())


@pytest.mark.parametrize("nbytes", [64 << 10, (64 << 10) + 1])
@pytest.mark.parametrize("read_only", [False, True])
def test_Q1_a_copy_from_pinned_memory_reads_what_the_queue_wrote_there(
    device, shuffle, nbytes, read_only
):
    memory, array = pinned(device, nbytes)
    x, y = hal.empty(nbytes, hal.uint8, device).fill(7), hal.empty(nbytes, hal.uint8, device)
    queue = device.queue()
    shuffle(1)
    memory.copy_from(x, queue=queue)
    array.flags.writeable = not read_only
    done = y.copyin(array, queue=queue)
    expect(queue.__cuda_stream__()[0] == 0, "the queue does not wait for the host")
    expect(done.wait(20) and (y.numpy() == 7).all())


def test_Q3_a_copyout_is_over_for_every_queue_behind_its_event(device, shuffle):
    """Its last step is the host's, which no stream waits for."""
    first, second, third = (device.queue() for _ in range(3))
    host, x, y = (np.zeros(N, np.int32), *(hal.empty(N, hal.int32, device) for _ in range(2)))
    for seed in SEEDS:
        shuffle(seed)
        x.fill(seed, queue=first)
        third.wait(second.wait(x.copyout(host, queue=first)).record())
        expect(y.copyin(host, queue=third).wait(20))
        expect(y.numpy().tolist() == [seed] * N, f"seed {seed}")
        third.wait(second.wait(x.copyout(host, queue=first)).record())
        host[:] = 0
        expect(third.synchronize(20) and host.tolist() == [seed] * N, f"the host, seed {seed}")
        second.wait(x.copyout(host, queue=first))
        y.fill(-seed, queue=second)
        expect(y.copyout(host, queue=second).wait(20) and first.synchronize(20))
        expect(host.tolist() == [-seed] * N, f"two copies, seed {seed}")


def test_Q3_the_default_queue_waits_for_the_data_of_a_copyout(device, shuffle):
    queue, host, y = device.queue(), np.zeros(N, np.int32), hal.empty(N, hal.int32, device)
    shuffle(1)
    x = hal.empty(N, hal.int32, device).fill(7)
    device.default_queue.wait(x.copyout(host, queue=queue))
    expect(y.copyin(host).numpy().tolist() == [7] * N)


class InACycle:
    """An owner of a queue that only the garbage collector finds."""

    def __init__(self, queue):
        self.queue, self.itself = queue, self


@pytest.mark.parametrize("replayed", [False, True])
def test_Q4_a_queue_that_is_garbage_in_a_cycle_keeps_memory_until_its_work_is_done(
    device, shuffle, replayed
):
    program, owner = device.compile(twofold), InACycle(device.queue())
    x, y = hal.empty(N, hal.int32, device).fill(3), hal.empty(N, hal.int32, device)
    with device.capture() as graph:
        program(y, x, vals=(N,), threads=N)
    graph.replay()
    device.synchronize()
    shuffle(1)  # nothing is done while nobody asks
    if replayed:
        graph.replay(queue=owner.queue)
    else:
        program(y, x, vals=(N,), threads=N, queue=owner.queue)
    graph.nodes.clear()
    del owner, graph, x, y
    gc.collect()
    others = [hal.empty(N, hal.int32, device).fill(value) for value in range(2)]
    expect(device.synchronize(20))
    expect([one.numpy().tolist() for one in others] == [[0] * N, [1] * N])


def test_Q4_a_queue_that_waited_and_was_closed_is_forgotten(device):
    queue, gate = device.queue(), hal.Event()
    queue.wait(gate)
    gate.set()
    queue.close()
    gone = weakref.ref(queue)
    del queue
    device.queue().close()  # which looks for what has ended
    gc.collect()
    expect(gone() is None)

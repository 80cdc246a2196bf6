"""Tests of queues over a driver that runs streams in any order that they and their events allow.

A plugin's test_queue.py imports them, and gives the fixture `shuffle`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hal_core as hal
from hal_core.streams.queue import StreamQueue
from hal_core.testing.conformance.test_graph import check_sequence

N, SEEDS = 64, range(1, 9)


@hal.kernel
def twofold(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2 * x[i]


def expect(holds: bool, problem: str = "") -> None:
    """Fail a test, also under `python -O`."""
    if not holds:
        raise AssertionError(problem)


def pipeline(device: hal.Compiled, seed: int) -> bool:
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


def test_Q1_events_order_streams(device: hal.Compiled, shuffle: Callable[[int], None]) -> None:
    for seed in SEEDS:
        shuffle(seed)
        expect(pipeline(device, seed), f"seed {seed}")


@pytest.mark.parametrize("method", ["_wait", "_follow_default"])
def test_a_queue_without_order_is_found(
    method: str, device: hal.Compiled, shuffle: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def fresh(seed: int) -> bool:
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


def test_Q4_memory_is_not_used_again_too_early(
    device: hal.Compiled, shuffle: Callable[[int], None]
) -> None:
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


def test_G6_sequences_in_any_order(device: hal.Compiled, shuffle: Callable[[int], None]) -> None:
    for seed in range(2000, 2025):
        shuffle(1 + seed)
        check_sequence(device, seed)


@pytest.mark.parametrize("nbytes", [64 << 10, 1 << 20, (9 << 20) + 1])
def test_Q3_large_copies_go_through_pinned_memory(
    nbytes: int, device: hal.Compiled, shuffle: Callable[[int], None]
) -> None:
    queue, made = device.queue(), hal.empty(nbytes, hal.uint8, device)
    data, found = (
        np.random.default_rng(1).integers(0, 255, nbytes, np.uint8),
        np.zeros(nbytes, "u1"),
    )
    shuffle(3)
    made.copyin(data, queue=queue)
    done = made.copyout(found, queue=queue)
    expect(not found.any(), "the copy waits for nobody")
    expect(done.wait(20) and np.array_equal(found, data))
    queue.close()


def test_Q3_a_copy_from_memory_that_the_queue_still_writes_to(device: hal.Compiled) -> None:
    queue, host = device.queue(), np.zeros(N, np.int32)
    x, y = hal.zeros(N, hal.int32, device), hal.zeros(N, hal.int32, device)
    x.fill(7, queue=queue)
    x.copyout(host, queue=queue)
    y.copyin(host, queue=queue)
    expect(queue.synchronize(20) and y.numpy().tolist() == [7] * N)

"""Loops that a few threads run at a time: which they are, and that barriers stop them."""

from __future__ import annotations

import pytest
from stepping import Block

import hal_core as hal
from hal_kernel.ir import Kernel
from hal_kernel.ir.blocks import groups
from hal_kernel.ir.blocks.fission import split

BLOCK = 8
Array = hal.Ptr[hal.int32]


@hal.kernel(block=(BLOCK, 1, 1))
def plain(y: Array, x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    t = hal.thread_idx(0)
    total = hal.int32(0)
    for k in range(20):
        total += x[k % 6] * t
    y[t] = total


@hal.kernel(block=(BLOCK, 1, 1))
def guarded(y: Array, x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    t = hal.thread_idx(0)
    if t < n:
        total = hal.int32(0)
        for k in range(n, 20):
            for j in range(k, 24):
                total += x[j % 6] * t
        y[t] = total


@hal.kernel(block=(BLOCK, 1, 1))
def few_around_many(y: Array, x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    """Three iterations would be unrolled, but not the loop in each of them."""
    t = hal.thread_idx(0)
    total = hal.int32(0)
    for k in range(3):
        for j in range(n):
            total += x[(j + k) % 6] * t
    y[t] = total


@hal.kernel(block=(BLOCK, 1, 1))
def few_around_few(y: Array, x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    """All of it is unrolled."""
    t = hal.thread_idx(0)
    total = hal.int32(0)
    for k in range(3):
        for j in range(k + 1, 4):
            total += x[(j + k) % 6] * t
    y[t] = total


@hal.kernel(block=(BLOCK, 1, 1))
def waiting(y: Array, x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    """In each round a thread reads what its neighbour wrote in the round before."""
    t = hal.thread_idx(0)
    total = hal.int32(0)
    for k in range(4):
        total += y[7 - t + 8 * k]
        y[t + 8 * (k + 1)] = total
        hal.barrier()


@hal.kernel(block=(BLOCK, 1, 1))
def shrinking(y: Array, x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    """Fewer threads work in each iteration: no group of them does all."""
    t = hal.thread_idx(0)
    total = hal.int32(0)
    for k in range(n + 20):
        if t < 8 - k:
            total += x[k % 6]
    y[t] = total


@hal.kernel(block=(BLOCK, 1, 1))
def counting(y: Array, x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    """A variable of the block changes in the loop: it may change once in each iteration only."""
    t = hal.thread_idx(0)
    total = hal.int32(0)
    rounds = hal.int32(0)
    for k in range(n, 20):
        rounds = max(rounds + 1, 1)
        total += x[k % 6] * t
    for k in range(rounds):
        y[t + 8 * (k % 4)] += total
        hal.barrier()


def marks(kernel: Kernel) -> list[int]:
    return [node.arg for node in split(kernel, grouped=True) if node.op == "GROUPS"]


def agrees(kernel: Kernel, n: int) -> bool:
    """Whether the split kernel gives what the threads give that step from barrier to barrier."""
    results = []
    for uops in (kernel.uops, split(kernel, grouped=True)):
        memory = {0: [3 * k for k in range(8 * BLOCK)], 1: [(5 * k) % 7 - 2 for k in range(6)]}
        block = Block(uops, memory, {2: n}, 0, BLOCK)
        block.run() if uops is kernel.uops else block.run_split("shuffled")
        results.append(memory[0])
    return results[0] == results[1]


@pytest.mark.parametrize(
    ("kernel", "lanes"),
    [
        (plain, [128]),
        (guarded, [128]),
        (few_around_many, [128]),
        (few_around_few, []),
        (waiting, []),
        (shrinking, []),
        (counting, []),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_which_loops_a_few_threads_run_at_a_time(
    kernel: hal.KernelFunction, lanes: list[int]
) -> None:
    lowered = kernel.lower()
    assert marks(lowered) == lanes
    assert all(agrees(lowered, n) for n in range(9))


def test_many_variables_make_small_groups() -> None:
    @hal.kernel(block=(BLOCK, 1, 1))
    def four(y: hal.Ptr[hal.float64], x: hal.ConstPtr[hal.float64], n: hal.int32) -> None:
        t = hal.thread_idx(0)
        a = hal.float64(0)
        b = hal.float64(0)
        c = hal.float64(0)
        d = hal.float64(0)
        for k in range(n):
            a += x[k + t]
            b -= a * x[k]
            c += a * b
            d += a - b
        y[t] = a * b + c * d

    assert marks(four.lower()) == [32]


def test_a_group_that_passes_a_barrier_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_AROUND", groups._AROUND | {"BARRIER"})
    assert marks(waiting.lower()) and not agrees(waiting.lower(), 0)


def test_a_group_that_changes_a_variable_of_the_block_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "_AROUND", groups._AROUND | {"SET"})
    assert marks(counting.lower()) and not agrees(counting.lower(), 0)


@hal.kernel(block=(BLOCK, 1, 1))
def by_block(y: Array, x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    t = hal.thread_idx(0)
    if t < n and hal.block_idx(0) < n - 3:
        total = 0
        for k in range(x[hal.block_idx(0)], x[hal.block_idx(0) + 1] + 5):
            if y[k + 20] > 90:
                break
            total += y[k + t + 20]
        y[t + 8] = total


def test_a_row_loads_nothing_if_its_guards_hold_for_no_thread() -> None:
    """`x` has as many elements as the guards let through; with one less the loads are noticed."""
    lowered = by_block.lower()
    assert "ROW_GROUPS" in [node.op for node in split(lowered, grouped=True)]
    for n in range(9):
        for size in (2, 1):
            results = []
            for uops in (lowered.uops, split(lowered, grouped=True)):
                memory = {0: [3 * k for k in range(64)], 1: [7, 9][:size]}
                block = Block(uops, memory, {2: n}, 0, BLOCK)
                if n > 3 and size == 1:
                    with pytest.raises(IndexError):
                        block.run() if uops is lowered.uops else block.run_split("shuffled")
                    continue
                block.run() if uops is lowered.uops else block.run_split("shuffled")
                results.append(memory[0])
            assert not results or results[0] == results[1]

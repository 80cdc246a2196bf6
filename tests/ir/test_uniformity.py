"""What all threads of a block agree on: examples, and drawn kernels watched as they run."""

from __future__ import annotations

import random
from typing import Any

import pytest
from barrier_kernels import BLOCKS, SIZE, drawn
from stepping import Block, listing

import hal_core as hal
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.uniformity import Uniformity, divergent
from hal_kernel.ir.uop import LEAVES
from hal_kernel.ir.verify import verify

# mypy: disable-error-code="no-untyped-def"

# -- examples


@hal.kernel
def at_the_top(y: hal.Ptr[hal.int32]):
    hal.barrier()
    y[0] = 1


@hal.kernel
def in_a_loop_over_a_parameter(y: hal.Ptr[hal.int32], n: hal.int32):
    for _ in range(n):
        hal.barrier()


@hal.kernel
def under_a_condition_of_the_block(y: hal.Ptr[hal.int32], n: hal.int32):
    if hal.block_idx(0) < n and hal.block_dim(0) > 3:
        hal.barrier()


@hal.kernel
def in_a_tree_reduction(y: hal.Ptr[hal.int32]):
    step = hal.block_dim(0) // 2
    while step > 0:
        if hal.thread_idx(0) < step:
            y[hal.thread_idx(0)] = 1
        hal.barrier()
        step //= 2


@hal.kernel
def behind_a_loaded_bound(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32]):
    for _ in range(x[hal.block_idx(0)]):
        hal.barrier()


@hal.kernel
def beside_a_return_for_all(y: hal.Ptr[hal.int32], n: hal.int32):
    if hal.block_idx(0) >= n:
        return
    hal.barrier()


@hal.kernel
def before_a_return_for_some(y: hal.Ptr[hal.int32], n: hal.int32):
    hal.barrier()
    if hal.global_idx(0) >= n:
        return
    y[hal.global_idx(0)] = 1


@hal.kernel
def left_by_all(y: hal.Ptr[hal.int32], n: hal.int32):
    turns = 0
    while True:
        turns += 1
        hal.barrier()
        if turns > n:
            break


@hal.kernel
def around_a_loop_left_by_some(y: hal.Ptr[hal.int32], n: hal.int32):
    for _ in range(n):
        k = 0
        while True:
            k += 1
            if k > hal.thread_idx(0):
                break
        hal.barrier()


@hal.kernel
def under_a_condition_of_the_thread(y: hal.Ptr[hal.int32], n: hal.int32):
    if hal.thread_idx(0) < n:
        hal.barrier()


@hal.kernel
def in_the_other_half(y: hal.Ptr[hal.int32], n: hal.int32):
    if hal.thread_idx(0) < n:
        y[0] = 1
    else:
        hal.barrier()


@hal.kernel
def in_a_loop_over_the_thread(y: hal.Ptr[hal.int32]):
    for _ in range(hal.thread_idx(0)):
        hal.barrier()


@hal.kernel
def behind_a_guard_that_returns(y: hal.Ptr[hal.int32], n: hal.int32):
    if hal.global_idx(0) >= n:
        return
    hal.barrier()


@hal.kernel
def in_a_loop_some_leave(y: hal.Ptr[hal.int32], n: hal.int32):
    for k in range(n):
        hal.barrier()
        if k == hal.thread_idx(0):
            break


@hal.kernel
def in_a_loop_some_go_on_with(y: hal.Ptr[hal.int32], n: hal.int32):
    for k in range(n):
        if k == hal.thread_idx(0):
            continue
        hal.barrier()


@hal.kernel
def in_a_loop_some_return_from(y: hal.Ptr[hal.int32], n: hal.int32):
    for k in range(n):
        hal.barrier()
        if k == hal.thread_idx(0):
            return


@hal.kernel
def by_a_variable_that_differs(y: hal.Ptr[hal.int32], n: hal.int32):
    stop = 0
    if hal.thread_idx(0) > n:
        stop = 3
    for _ in range(stop):
        hal.barrier()


@hal.kernel
def by_a_variable_that_differs_later(y: hal.Ptr[hal.int32], n: hal.int32):
    stop = 0
    for _ in range(n):
        if stop == 0:
            hal.barrier()
        stop = hal.thread_idx(0)


@hal.kernel
def by_an_own_load(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32]):
    if x[hal.global_idx(0)] > 0:
        hal.barrier()


@hal.kernel
def by_what_an_atomic_found(y: hal.Ptr[hal.int32]):
    if hal.atomic_add(y, 0, 1) == 0:
        hal.barrier()


@hal.kernel
def by_how_often_a_loop_turned(y: hal.Ptr[hal.int32], n: hal.int32):
    turns = 0
    while turns * turns < hal.thread_idx(0):
        turns += 1
    if turns > n:
        hal.barrier()


REACHED = [
    at_the_top, in_a_loop_over_a_parameter, under_a_condition_of_the_block, in_a_tree_reduction,
    behind_a_loaded_bound, beside_a_return_for_all, before_a_return_for_some, left_by_all,
    around_a_loop_left_by_some,
]  # fmt: skip
MISSED = {
    under_a_condition_of_the_thread: "the condition differs",
    in_the_other_half: "the condition differs",
    in_a_loop_over_the_thread: "the range differs",
    behind_a_guard_that_returns: "some threads have returned before",
    in_a_loop_some_leave: "some threads break out of its loop before others",
    in_a_loop_some_go_on_with: "some threads skip to the next iteration of its loop",
    in_a_loop_some_return_from: "some threads have returned before",
    by_a_variable_that_differs: "the range differs",
    by_a_variable_that_differs_later: "the condition differs",
    by_an_own_load: "the condition differs",
    by_what_an_atomic_found: "the condition differs",
    by_how_often_a_loop_turned: "the condition differs",
}


@pytest.mark.parametrize("kernel", REACHED, ids=lambda kernel: kernel.name)
def test_a_barrier_that_all_reach(kernel: Any) -> None:
    verify(kernel.lower())


@pytest.mark.parametrize("kernel", MISSED, ids=lambda kernel: kernel.name)
def test_a_barrier_that_some_pass_by(kernel: Any) -> None:
    with pytest.raises(hal.KernelSyntaxError, match=f"this barrier: {MISSED[kernel]}") as caught:
        kernel.lower()
    assert caught.value.text is not None and "hal.barrier()" in caught.value.text


# -- as they run


def _blocks(kernel: Kernel, n: int) -> list[Block]:
    memory = {0: [3 * k for k in range(BLOCKS * SIZE)], 1: [(5 * k) % 7 - 2 for k in range(SIZE)]}
    threads = kernel.block[0] if kernel.block else 1
    return [Block(kernel.uops, memory, {2: n}, number, threads) for number in range(BLOCKS)]


def disagreement(kernel: Kernel, n: int) -> UOp | None:
    """A node that is said to be the same for all threads, and was not."""
    known = Uniformity(kernel)
    for block in _blocks(kernel, n):
        block.watch = True
        block.run()
        seen: dict[int, list[tuple[UOp, Any]]] = {t: [] for t in range(block.threads)}
        for thread, node, value in block.seen:
            if node not in known.varying and node not in known.divided:
                seen[thread].append((node, value))
        first = seen[0]
        for other in seen.values():
            for a, b in zip(first, other, strict=False):
                if a != b:
                    return a[0]
            if len(first) != len(other):
                return max(first, other, key=len)[-1][0]
    return None


def test_what_is_said_to_be_the_same_is_the_same() -> None:
    agreed = 0
    for seed in range(300):
        kernel = drawn(seed)
        found = disagreement(kernel, seed % 5 - 1)
        assert found is None, f"{seed}: {found!r}\n{listing(kernel.uops)}"
        agreed += len(kernel.uops) - len(Uniformity(kernel).varying)
    assert agreed > 10_000, "an answer that says nothing would be right too"


def with_barriers(seed: int) -> Kernel:
    """A drawn kernel, with barriers at any places: they add no race."""
    rng, kernel = random.Random(seed), drawn(seed, barriers=False)
    uops: list[UOp] = []
    for node in kernel.uops:
        if rng.random() < 0.02 and node.op != "SHARED" and (not uops or uops[-1].op not in LEAVES):
            uops.append(UOp("BARRIER"))
        uops.append(node)
    return kernel._replace(uops=tuple(uops))


def test_barriers_that_are_accepted_are_reached_by_all() -> None:
    accepted = refused = 0
    for seed in range(600):
        kernel = with_barriers(seed)
        if divergent(kernel):
            refused += 1
            continue
        accepted += any(node.op == "BARRIER" for node in kernel.uops)
        for block in _blocks(kernel, seed % 5 - 1):
            block.run()  # raises where threads part
    assert accepted > 50 and refused > 50

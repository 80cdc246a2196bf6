"""Subgroups and fences in the interpreter: what they mean, and what is a fault."""

from pathlib import Path

import numpy as np
import pytest
from kernel_files import IMPORTS, load, refused

import hal_core as hal
from hal_kernel.interpreter import interpret


@hal.kernel
def shuffled(y: hal.Ptr[hal.int32], lane: hal.int32) -> None:
    i = hal.global_idx(0)
    y[i] = hal.shuffle(i, hal.subgroup_lane() + lane)


@pytest.mark.parametrize(("lane", "got", "limit"), [(1, 8, 7), (-1, -1, 7)])
def test_a_shuffle_outside_of_the_subgroup(lane, got, limit):
    with pytest.raises(hal.KernelFault, match="outside of the subgroup of thread") as raised:
        interpret(shuffled, np.zeros(16, "i4"), vals=(lane,), grid=1, block=16, subgroup=8)
    assert f"got {got}; limit 0 to {limit}" in str(raised.value)


def test_the_last_subgroup_of_a_block_may_have_fewer():
    y = np.zeros(12, "i4")
    with pytest.raises(hal.KernelFault, match=r"got 4; limit 0 to 3"):
        interpret(shuffled, y, vals=(1,), grid=1, block=4, subgroup=8)
    interpret(shuffled, y, vals=(0,), grid=1, block=12, subgroup=8)
    assert y.tolist() == list(range(12))


def test_the_size_is_a_power_of_two():
    with pytest.raises(hal.InvalidArgument, match="subgroup must be a power of two"):
        interpret(shuffled, np.zeros(4, "i4"), vals=(0,), threads=4, subgroup=3)


REFUSED = [
    ("if i < n:\n    y[i] = hal.subgroup_sum(1)", "hal.subgroup_sum", "not all threads of a sub"),
    ("if i >= n:\n    return\nv = hal.ballot(n > 1)", "hal.ballot", "have returned before"),
    ("y[i] = hal.shuffle(i, 0) if i > 2 else 0", "hal.shuffle", "the condition differs"),
    ("for k in range(hal.subgroup_lane()):\n    y[i] = hal.shuffle(i, 0)", "hal.sh", "the range"),
    ("y[i] = hal.shuffle(i, 64)", "64", "a subgroup has no thread 64"),
    ("y[i] = hal.shuffle(i, 0 - 1)", "0 - 1", "a subgroup has no thread -1"),
    ("y[i] = hal.shuffle(i, 0.5)", "0.5", "a subgroup has no thread 0.5"),
    ("v = hal.subgroup_sum(hal.int8(1))", "hal.int8", "32 and 64 bits, not int8"),
    ("v = hal.subgroup_max(i > 2)", "i > 2", "32 and 64 bits, not bool"),
    ("v = hal.ballot(i)", "i", "int32 where bool"),
    ("v = hal.subgroup_size(0)", "hal.subgroup_size", "takes 0 argument(s), not 1"),
    ("v = hal.global_idx()", "hal.global_idx", "not 0. Write hal.global_idx(axis)."),
    ("v = hal.fma(i)", "hal.fma", "takes 3 argument(s), not 1. Write hal.fma(x, y, z)."),
    ("v = round()", "round", "takes 1 argument(s), not 0. Write round(number)."),
    ("hal.fence(1)", "hal.fence", "takes 0 argument(s), not 1. Write hal.fence()."),
    ("hal.atomic_add(y, 0, 1, 2)", "2", "2 is not an order of memory"),
    ("hal.atomic_add(y, 0, 1, hal.release, 2)", "hal.atomic_add", "takes 3 arguments, not 5"),
    ("v = hal.atomic_load(y, 0, 2)", "2", "order of memory. Write hal.acquire, or leave it out."),
    ("y[i] = hal.acquire", "hal.acquire", "is a function, not a value"),
]


HEAD = f"""{IMPORTS}
@hal.kernel
def f(y: hal.Ptr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
"""


test_refused_with_the_place = refused(HEAD, [(*row, "") for row in REFUSED])


# -- fences


@hal.kernel(block=(4, 1, 1))
def look_back(
    y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], state: hal.Ptr[hal.int32],
    sums: hal.Ptr[hal.int32], whole: hal.Ptr[hal.int32], ticket: hal.Ptr[hal.int32],
) -> None:  # fmt: skip
    """A scan in one launch: a block adds what the blocks before it have published."""
    place = hal.shared(hal.int32, 2)
    values = hal.shared(hal.int32, 4)
    t = hal.thread_idx(0)
    if t == 0:
        place[0] = hal.atomic_add(ticket, 0, 1)  # blocks come in any order
    hal.barrier()
    b = place[0]
    values[t] = x[b * 4 + t]
    hal.barrier()
    if t == 0:
        total = values[0] + values[1] + values[2] + values[3]
        sums[b] = total
        hal.atomic_store(state, b, 1, hal.release)
        before = 0
        p = b - 1
        while p >= 0:
            seen = hal.atomic_load(state, p, hal.acquire)
            if seen == 2:
                before += whole[p]
                break
            if seen == 1:
                before += sums[p]
                p -= 1
        whole[b] = before + total
        hal.atomic_exchange(state, b, 2, hal.release)
        place[1] = before
    hal.barrier()
    running = place[1]
    for k in range(t + 1):
        running += values[k]
    y[b * 4 + t] = running


def scanned(kernel, blocks=40):
    x = np.random.default_rng(0).integers(-9, 9, blocks * 4).astype("i4")
    y = np.zeros_like(x)
    state, sums, whole = np.zeros((3, blocks), "i4")
    interpret(kernel, y, x, state, sums, whole, np.zeros(1, "i4"), grid=blocks)
    return y.tolist(), x.cumsum().tolist()


def test_a_scan_with_look_back_has_no_race():
    got, expected = scanned(look_back)
    assert got == expected


@pytest.mark.parametrize("order", ["release", "acquire"])
def test_without_one_of_the_orders_it_is_a_race(order, tmp_path):
    """Without a fence on either side nothing orders the sums of two blocks."""
    text = Path(__file__).read_text(encoding="utf-8")
    start, end = text.index("@hal.kernel(block=(4, 1, 1))"), text.index("def scanned(")
    source = text[start:end].replace(f", hal.{order})", ")")
    with pytest.raises(hal.KernelFault, match="a race for element .* of '(sums|whole)'"):
        scanned(load(tmp_path, IMPORTS + source).look_back)


@hal.kernel(block=(8, 1, 1))
def last_block(y: hal.Ptr[hal.int32], part: hal.Ptr[hal.int32], count: hal.Ptr[hal.int32]) -> None:
    """The block that comes last adds what all have written."""
    last = hal.shared(hal.int32, 1)
    t = hal.thread_idx(0)
    part[hal.global_idx(0)] = t
    hal.fence()
    hal.barrier()
    if t == 0:
        last[0] = hal.atomic_add(count, 0, 1, hal.acq_rel)
    hal.barrier()
    if last[0] == hal.grid_dim(0) - 1 and t == 0:
        for k in range(hal.grid_dim(0) * 8):
            y[0] += part[k]


def test_the_last_block_sees_what_all_have_written():
    y = np.zeros(1, "i4")
    interpret(last_block, y, np.zeros(56, "i4"), np.zeros(1, "i4"), grid=7)
    assert y[0] == 7 * 28


@hal.kernel
def unflagged(y: hal.Ptr[hal.int32], data: hal.Ptr[hal.int32]) -> None:
    b = hal.block_idx(0)
    data[b] = b
    hal.fence()
    if b > 0:
        y[b] = data[b - 1]


def test_a_fence_alone_orders_nothing():
    with pytest.raises(hal.KernelFault, match="a race for element"):
        interpret(unflagged, np.zeros(4, "i4"), np.zeros(4, "i4"), grid=4, block=1)


@hal.kernel
def handed_on(
    y: hal.Ptr[hal.int32], data: hal.Ptr[hal.int32], flags: hal.Ptr[hal.int32], read: hal.int32
) -> None:
    if hal.block_idx(0) == 0:
        data[0] = 7
        hal.atomic_store(flags, 0, 1, hal.release)
        hal.atomic_store(flags, 1, 1)
    elif hal.atomic_load(flags, read, hal.acquire) == 1:
        y[0] = data[0]


def test_a_store_that_releases_orders_for_its_own_element_alone():
    y = np.zeros(1, "i4")
    interpret(handed_on, y, np.zeros(1, "i4"), np.zeros(2, "i4"), vals=(0,), grid=2, block=1)
    assert y[0] == 7
    with pytest.raises(hal.KernelFault, match="a race for element 0 of 'data'"):
        interpret(handed_on, y, np.zeros(1, "i4"), np.zeros(2, "i4"), vals=(1,), grid=2, block=1)


@hal.kernel
def locked(data: hal.Ptr[hal.int32], lock: hal.Ptr[hal.int32]) -> None:
    waits = True
    while waits:
        if hal.atomic_compare_exchange(lock, 0, 0, 1, hal.acquire) == 0:
            data[0] = data[0] + 1
            hal.atomic_store(lock, 0, 0, hal.release)
            waits = False


@pytest.mark.parametrize("block", [1, 2, 6])
def test_a_lock_orders_what_it_guards(block):
    data = np.zeros(1, "i4")
    interpret(locked, data, np.zeros(1, "i4"), threads=6, block=block)
    assert data[0] == 6

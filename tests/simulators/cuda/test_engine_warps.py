"""What the threads of a warp do together, under both schedules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engine_kernel import STORE, entry, words
from engine_runner import SCHEDULES, Engine, shared_engine

both = pytest.mark.parametrize("schedule", SCHEDULES)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return shared_engine(tmp_path_factory)


SHUFFLES: dict[str, Callable[[int], int]] = {
    "up.b32 %r3|%p1, %r4, 3, 0": lambda lane: lane - 3 if lane >= 3 else -1,
    "down.b32 %r3|%p1, %r4, 3, 31": lambda lane: lane + 3 if lane < 29 else -1,
    "bfly.b32 %r3|%p1, %r4, 5, 31": lambda lane: lane ^ 5,
    "idx.b32 %r3|%p1, %r4, 7, 31": lambda lane: 7,
    "idx.b32 %r3|%p1, %r4, 2, 0x181f": lambda lane: lane // 8 * 8 + 2,
    "down.b32 %r3|%p1, %r4, 5, 0x181f": lambda lane: lane + 5 if lane % 8 < 3 else -1,
    "up.b32 %r3|%p1, %r4, 5, 0x1800": lambda lane: lane - 5 if lane % 8 >= 5 else -1,
}


@both
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_shuffles(engine: Engine, shuffle: str, schedule: str) -> None:
    body = f"""
    add.u32 %r4, %r1, 100;
    shfl.sync.{shuffle}, -1;
    @%p1 add.u32 %r3, %r3, 1000;
"""
    got = words(engine, entry(body + STORE), 64, schedule=schedule)
    sources = [SHUFFLES[shuffle](k % 32) for k in range(64)]
    base = [k // 32 * 32 for k in range(64)]
    assert got == [
        100 + k if source < 0 else 1100 + base[k] + source for k, source in enumerate(sources)
    ]


@both
def test_votes(engine: Engine, schedule: str) -> None:
    body = """
    setp.lt.u32 %p1, %r1, 40;
    vote.sync.ballot.b32 %r3, %p1, -1;
    vote.sync.all.pred %p2, %p1, -1;
    @%p2 xor.b32 %r3, %r3, 1;
    vote.sync.any.pred %p2, !%p1, -1;
    @%p2 xor.b32 %r3, %r3, 2;
    vote.sync.uni.pred %p2, %p1, -1;
    @%p2 xor.b32 %r3, %r3, 4;
"""
    got = words(engine, entry(body + STORE), 96, schedule=schedule)
    assert got == [0xFFFFFFFF ^ 5] * 32 + [0xFF ^ 2] * 32 + [0 ^ 2 ^ 4] * 32


@both
def test_matches_and_reductions(engine: Engine, schedule: str) -> None:
    body = """
    and.b32 %r4, %r1, 3;
    match.any.sync.b32 %r3, %r4, -1;
    cvt.u64.u32 %rd2, %r1;
    shr.u64 %rd2, %rd2, 5;
    match.all.sync.b64 %r5|%p1, %rd2, -1;
    @%p1 xor.b32 %r3, %r3, %r5;
    match.all.sync.b32 %r5|%p1, %r1, -1;
    @!%p1 add.u32 %r3, %r3, %r5;
    redux.sync.add.u32 %r5, %r1, -1;
    add.u32 %r3, %r3, %r5;
    sub.u32 %r6, %r1, 40;
    redux.sync.min.s32 %r5, %r6, -1;
    add.u32 %r3, %r3, %r5;
    redux.sync.or.b32 %r5, %r1, -1;
    add.u32 %r3, %r3, %r5;
"""
    got = words(engine, entry(body + STORE), 64, schedule=schedule)
    expected = []
    for k in range(64):
        first = k // 32 * 32
        same = 0x11111111 << (k & 3)
        total = (same ^ 0xFFFFFFFF) + sum(range(first, first + 32)) + first - 40 + (first | 31)
        expected.append(total % 2**32)
    assert got == expected


@both
def test_a_part_of_a_warp(engine: Engine, schedule: str) -> None:
    """Both sides of a branch shuffle, each among its own."""
    body = """
    setp.lt.u32 %p1, %r1, 10;
    @%p1 bra low;
    shfl.sync.idx.b32 %r3, %r1, 12, 31, 0xfffffc00;
    bra out;
low:
    shfl.sync.idx.b32 %r3, %r1, 4, 31, 0x3ff;
out:
"""
    assert words(engine, entry(body + STORE), 32, schedule=schedule) == [4] * 10 + [12] * 22


@both
def test_threads_that_have_ended_are_not_waited_for(engine: Engine, schedule: str) -> None:
    body = "    setp.gt.u32 %p1, %r1, 20;\n    @%p1 exit;\n    vote.sync.ballot.b32 %r3, 1, -1;\n"
    assert (
        words(engine, entry(body + STORE), 32, schedule=schedule) == [(1 << 21) - 1] * 21 + [0] * 11
    )


def test_the_active_mask(engine: Engine) -> None:
    body = (
        "    mov.u32 %r3, 0;\n    setp.gt.u32 %p1, %r1, 20;\n    @%p1 activemask.b32 %r3;\n" + STORE
    )
    assert (
        words(engine, entry(body), 32, schedule="lockstep")
        == [0] * 21 + [0xFFFFFFFF << 21 & 0xFFFFFFFF] * 11
    )
    assert words(engine, entry(body), 32) == [0] * 21 + [1 << k for k in range(21, 32)]


@pytest.mark.parametrize("ways", [(0, 1), (1, 0)])
def test_a_warp_in_step_meets_again(engine: Engine, ways: tuple[int, int]) -> None:
    """Behind a branch, whichever side is longer; also where one side has called."""
    sides = ("    add.u32 %r4, %r4, 1;\n" * 5 + "    call f;\n", "    add.u32 %r4, %r4, 1;\n")
    body = f"""
    setp.gt.u32 %p1, %r1, 20;
    @%p1 bra other;
{sides[ways[0]]}    bra together;
other:
{sides[ways[1]]}together:
    activemask.b32 %r3;
{STORE}"""
    text = entry(body, before=".func f() { .reg .b32 %r1; mov.u32 %r1, 1; ret; }\n")
    assert words(engine, text, 32, schedule="lockstep") == [0xFFFFFFFF] * 32


def test_a_warp_in_step_needs_no_barrier(engine: Engine) -> None:
    """As programs for the first GPUs were written: a tree of sums."""
    body = """
    .shared .b32 s[64];
    mov.u64 %rd2, s;
    mad.wide.u32 %rd3, %r1, 4, %rd2;
    st.volatile.shared.u32 [%rd3], %r1;
    st.volatile.shared.u32 [%rd3+128], 0;
"""
    for step in (16, 8, 4, 2, 1):
        body += f"""
    ld.volatile.shared.u32 %r3, [%rd3];
    ld.volatile.shared.u32 %r4, [%rd3+{4 * step}];
    add.u32 %r3, %r3, %r4;
    st.volatile.shared.u32 [%rd3], %r3;
"""
    assert words(engine, entry(body + STORE), 32, schedule="lockstep")[0] == sum(range(32))
    assert words(engine, entry(body + STORE), 32, schedule="run-to-barrier")[0] != sum(range(32))

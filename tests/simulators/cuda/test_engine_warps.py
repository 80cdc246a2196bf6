"""What the threads of a warp do together, under both schedules."""

from __future__ import annotations

import pytest
from engine_kernel import STORE, entry, words
from engine_runner import SCHEDULES, Engine, shared_engine

both = pytest.mark.parametrize("schedule", SCHEDULES)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return shared_engine(tmp_path_factory)


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

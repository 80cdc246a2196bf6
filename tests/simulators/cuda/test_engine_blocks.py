"""Threads of a block together: barriers, and where each is, under both schedules."""

import numpy as np
import pytest
from engine_kernel import STORE, entry, fault, words
from engine_runner import SCHEDULES, Fault

both = pytest.mark.parametrize("schedule", SCHEDULES)


def turned(barrier):
    """Each thread reads what its mirror image has written."""
    return entry(f"""
    .shared .b32 s[256];
    mov.u32 %r4, %ntid.x;
    mov.u64 %rd2, s;
    mad.wide.u32 %rd3, %r1, 4, %rd2;
    mul.lo.u32 %r5, %r1, 10;
    st.shared.u32 [%rd3], %r5;
    {barrier}
    sub.u32 %r6, %r4, %r1;
    mad.wide.u32 %rd3, %r6, 4, %rd2;
    ld.shared.u32 %r3, [%rd3+-4];
{STORE}""")


@both
@pytest.mark.parametrize("threads", [1, 31, 32, 33, 256])
def test_a_barrier(engine, schedule, threads):
    for barrier in ("bar.sync 0;", "barrier.sync 3;", "bar.cta.sync 15;"):
        got = words(engine, turned(barrier), threads, schedule=schedule)
        assert got == [10 * (threads - 1 - k) for k in range(threads)]


def test_a_missing_barrier_shows(engine):
    """Where threads run one by one; in step within a warp it happens to go well."""
    right = [10 * (31 - k) for k in range(32)]
    assert words(engine, turned(""), 32, schedule="run-to-barrier") != right
    assert words(engine, turned(""), 32, schedule="lockstep") == right


@both
def test_a_barrier_that_a_thread_never_comes_to(engine, schedule):
    for way in ("ret;", "exit;", "bra out;"):
        body = f"    setp.eq.u32 %p1, %r1, 3;\n    @%p1 {way}\n    bar.sync 0;\nout:"
        caught = fault(engine, entry(body), np.zeros(8, np.uint32), threads=64, schedule=schedule)
        assert caught.kind == "Deadlock" and "bar.sync 0" in str(caught)


@both
def test_two_barriers_for_one_warp(engine, schedule):
    body = """
    setp.lt.u32 %p1, %r1, 8;
    @%p1 bra low;
    bar.sync 0;
    bra out;
low:
    bar.sync 0;
out:
"""
    caught = fault(engine, entry(body), np.zeros(8, np.uint32), threads=32, schedule=schedule)
    assert caught.kind == "Deadlock" and "different barriers" in str(caught)
    # Which barrier.sync, without .aligned, allows.
    engine.run(
        entry(body.replace("bar.sync", "barrier.sync")), "k", [np.zeros(8, np.uint32)], (1, 1, 1),
        (32, 1, 1), schedule=schedule,
    )  # fmt: skip


def test_a_fault_of_one_thread_ends_the_launch(engine):
    got = np.zeros(64, np.uint32)
    body = f"    mov.u32 %r3, 1;\n{STORE}\n    setp.eq.u32 %p1, %r1, 3;\n    @%p1 trap;\n"
    with pytest.raises(Fault, match="Trap"):
        engine.run(entry(body), "k", [got], (2, 1, 1), (32, 1, 1))
    assert got.tolist() == [1] * 4 + [0] * 60

"""The engine as a driver sees it: facts, variables, calls, faults, and the two schedules."""

import numpy as np
import pytest
from engine_kernel import STORE, entry, fault, words
from engine_runner import SCHEDULES, Refused

# -- variables of the module


def test_dynamic_shared_memory_starts_behind_the_static(engine):
    before = ".extern .shared .align 16 .b8 more[];\n"
    body = """
    .shared .b32 own[5];
    mov.u32 %r3, more;
    mov.u32 %r4, %dynamic_smem_size;
    mad.lo.u32 %r3, %r4, 1000, %r3;
    st.shared.u32 [more+60], %r3;
"""
    assert words(engine, entry(body + STORE, before=before), shared=64) == [64128]
    assert (
        fault(engine, entry(body + STORE, before=before), np.zeros(1, np.uint32), shared=60).kind
        == "OutOfBounds"
    )


# -- faults

FAULTS = {
    "beyond": ("st.global.u32 [%rd1+4], %r1;", "OutOfBounds"),
    "before": ("ld.global.u8 %r3, [%rd1+-1];", "OutOfBounds"),
    "null": ("mov.u64 %rd2, 0; ld.global.u32 %r3, [%rd2];", "OutOfBounds"),
    "wide": ("ld.global.u64 %rd2, [%rd1];", "OutOfBounds"),
    "generic": ("ld.u32 %r3, [%rd1+4];", "OutOfBounds"),
    "atomic": ("atom.global.add.u32 %r3, [%rd1+4], 1;", "OutOfBounds"),
    "shared": (".shared .b32 s[4]; st.shared.u32 [s+16], %r1;", "OutOfBounds"),
    "shared, generic": (
        ".shared .b32 s[4]; cvta.shared.u64 %rd2, s; st.u32 [%rd2+16], 0;",
        "OutOfBounds",
    ),
    "local": (".local .b32 l[4]; ld.local.u32 %r3, [l+16];", "OutOfBounds"),
    "parameter": ("mov.b64 %rd2, to; ld.param.u32 %r3, [%rd2+8];", "OutOfBounds"),
    "misaligned": ("ld.global.u16 %r3, [%rd1+1];", "Misaligned"),
    "vector": ("ld.global.v2.u16 {%h1, %h2}, [%rd1+2];", "Misaligned"),
    "misaligned atomic": ("atom.global.exch.b32 %r3, [%rd1+2], 1;", "Misaligned"),
    "trap": ("trap;", "Trap"),
    "barrier 16": ("mov.u32 %r3, 16; bar.sync %r3;", "Illegal"),
    "half a warp": ("mov.u32 %r3, 16; bar.sync 1, %r3;", "Illegal"),
    "not its own lane": ("vote.sync.all.pred %p1, %p2, 2;", "Illegal"),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", FAULTS)
def test_faults(engine, name, schedule):
    line, kind = FAULTS[name]
    caught = fault(engine, entry(f"    {line}"), np.zeros(1, np.uint32), schedule=schedule)
    assert caught.kind == kind
    assert "thread (0, 0, 0) of block (0, 0, 0) of k" in str(caught)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_threads_that_wait_for_one_another(engine, schedule):
    """One at a barrier of the block, the other at one of the warp."""
    body = """
    setp.eq.u32 %p1, %r1, 1;
    @!%p1 bar.warp.sync 3;
    bar.sync 0;
"""
    text = entry(body.replace("bar.sync 0;", "@%p1 bar.sync 0;"))
    caught = fault(engine, text, np.zeros(1, np.uint32), threads=2, schedule=schedule)
    assert caught.kind == "Deadlock"


def test_a_fault_says_where(engine):
    text = entry("    setp.eq.u32 %p1, %r1, 5;\n    @%p1 st.global.u32 [%rd1+400], %r1;")
    place = 1 + text[: text.index("@%p1")].count("\n")
    said = str(fault(engine, text, np.zeros(8, np.uint32), threads=8))
    assert f"line {place}: @%p1 st.global.u32" in said
    assert "thread (5, 0, 0) of block (0, 0, 0) of k" in said
    assert "writes 4 bytes at 0x" in said


def test_a_kernel_without_an_end(engine):
    text = entry("again:\n    bra again;")
    for schedule in SCHEDULES:
        caught = fault(
            engine, text, np.zeros(1, np.uint32), schedule=schedule, most=100_000, threads=40
        )
        assert caught.kind == "Timeout"


def test_a_text_that_is_refused(engine):
    with pytest.raises(Refused, match=r"line 16: frobnicate\.b32: an instruction"):
        engine.facts(entry("    frobnicate.b32 %r1, %r2;"))

"""The engine as a driver sees it: facts, variables, calls, faults, and the two schedules."""

from __future__ import annotations

import numpy as np
import pytest
from engine_kernel import STORE, entry, fault, words
from engine_runner import SCHEDULES, Engine, Fault, Refused, shared_engine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return shared_engine(tmp_path_factory)


# -- facts


def test_facts(engine: Engine) -> None:
    text = entry(
        "    .shared .b32 mine[3];\n    .local .b64 kept[2];\n    .reg .f64 %fd<4>;",
        ".param .u8 a, .param .align 8 .b8 b[12], .param .u64 to",
        before=".global .align 4 .b8 text[5] = {104, 105, 33};\n.const .f32 pi = 0f40490FDB;\n"
        ".shared .align 16 .b8 all[20];\n",
        after=".reqntid 8, 4",
    )
    module, kernel, *variables = engine.facts(text)
    assert module == "module 80 80"
    words = kernel.split()
    facts = dict(zip(words[2:14:2], words[3:14:2], strict=True))
    # a at 0, b at 8, to at 24; the entry's own shared memory starts behind the module's
    assert facts["params"] == "32"
    assert facts["shared"] == "140"
    assert facts["local"] == "16"
    assert facts["threads"] == "32"
    assert words[-3:] == ["8", "4", "1"]
    assert variables == ["variable text 5 4", "variable pi 4 4 constant"]


# -- variables of the module


def test_dynamic_shared_memory_starts_behind_the_static(engine: Engine) -> None:
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


# -- calls


def test_a_stack_that_is_full(engine: Engine) -> None:
    before = ".func f() { .local .b8 much[1024]; call f; ret; }\n"
    assert (
        fault(engine, entry("    call f;", before=before), np.zeros(1, np.uint32)).kind == "Illegal"
    )


def test_a_call_gives_its_memory_back(engine: Engine) -> None:
    before = ".func f() { .local .b8 much[1024]; st.local.u8 [much], 1; ret; }\n"
    body = """
    mov.u32 %r3, 0;
again:
    call f;
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, 2000;
    @%p1 bra again;
"""
    assert words(engine, entry(body + STORE, before=before)) == [2000]


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
def test_faults(engine: Engine, name: str, schedule: str) -> None:
    line, kind = FAULTS[name]
    caught = fault(engine, entry(f"    {line}"), np.zeros(1, np.uint32), schedule=schedule)
    assert caught.kind == kind
    assert "thread (0, 0, 0) of block (0, 0, 0) of k" in str(caught)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_threads_that_wait_for_one_another(engine: Engine, schedule: str) -> None:
    """One at a barrier of the block, the other at one of the warp."""
    body = """
    setp.eq.u32 %p1, %r1, 1;
    @!%p1 bar.warp.sync 3;
    bar.sync 0;
"""
    text = entry(body.replace("bar.sync 0;", "@%p1 bar.sync 0;"))
    caught = fault(engine, text, np.zeros(1, np.uint32), threads=2, schedule=schedule)
    assert caught.kind == "Deadlock"


def test_a_fault_says_where(engine: Engine) -> None:
    text = entry("    setp.eq.u32 %p1, %r1, 5;\n    @%p1 st.global.u32 [%rd1+400], %r1;")
    place = 1 + text[: text.index("@%p1")].count("\n")
    said = str(fault(engine, text, np.zeros(8, np.uint32), threads=8))
    assert f"line {place}: @%p1 st.global.u32" in said
    assert "thread (5, 0, 0) of block (0, 0, 0) of k" in said
    assert "writes 4 bytes at 0x" in said


def test_an_assertion(engine: Engine) -> None:
    before = """
.extern .func __assertfail
    (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .b8 text[] = {110, 62, 48, 0};
"""
    body = """
    .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
    mov.u64 %rd2, text;
    st.param.b64 [m], %rd2; st.param.b64 [f], %rd2; st.param.b32 [l], 12;
    st.param.b64 [n], %rd2; st.param.b64 [s], 1;
    call.uni __assertfail, (m, f, l, n, s);
"""
    caught = fault(engine, entry(body, before=before), np.zeros(1, np.uint32))
    assert caught.kind == "Assert" and "n>0 (n>0, line 12)" in str(caught)


def test_a_kernel_without_an_end(engine: Engine) -> None:
    text = entry("again:\n    bra again;")
    for schedule in SCHEDULES:
        caught = fault(
            engine, text, np.zeros(1, np.uint32), schedule=schedule, most=100_000, threads=40
        )
        assert caught.kind == "Timeout"


@pytest.mark.parametrize(
    ("block", "right"), [((8, 4, 1), True), ((4, 8, 1), False), ((32, 1, 1), False)]
)
def test_a_required_block(engine: Engine, block: tuple[int, int, int], right: bool) -> None:
    text = entry("", after=".reqntid 8, 4, 1")
    if right:
        engine.run(text, "k", [np.zeros(1, np.uint32)], (1, 1, 1), block)
        return
    with pytest.raises(Fault, match=r"Illegal.*reqntid"):
        engine.run(text, "k", [np.zeros(1, np.uint32)], (1, 1, 1), block)


def test_a_block_that_is_too_large(engine: Engine) -> None:
    for text, block in ((entry("", after=".maxntid 64"), (65, 1, 1)), (entry(""), (32, 33, 1))):
        with pytest.raises(Fault, match="Illegal"):
            engine.run(text, "k", [np.zeros(1, np.uint32)], (1, 1, 1), block)


def test_a_text_that_is_refused(engine: Engine) -> None:
    with pytest.raises(Refused, match=r"line 16: frobnicate\.b32: an instruction"):
        engine.facts(entry("    frobnicate.b32 %r1, %r2;"))

"""Atomics in every state space, under both schedules."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from engine_kernel import STORE, entry, words
from engine_runner import SCHEDULES, Engine, shared_engine

both = pytest.mark.parametrize("schedule", SCHEDULES)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return shared_engine(tmp_path_factory)


ATOMICS: dict[str, tuple[str, Callable[[int], int]]] = {
    "add.u32": ("%r1", lambda n: 100 + sum(range(n))),
    "min.s32": ("%r5", lambda n: -(n - 1)),
    "max.u32": ("%r5", lambda n: 2**32 - 1),
    "and.b32": ("-5", lambda n: 100 & -5),
    "or.b32": ("%r1", lambda n: 100 | 63),
    "xor.b32": ("%r1", lambda n: 100),
    "inc.u32": ("101", lambda n: (100 + n) % 102),
    "dec.u32": ("200", lambda n: (100 - n) % 201),
}


@both
@pytest.mark.parametrize("space", ["global", "shared", "generic"])
@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(engine: Engine, name: str, space: str, schedule: str) -> None:
    """Every thread of a block takes part; what they are given back are all values on the way."""
    operand, last = ATOMICS[name]
    word = "" if space == "generic" else f".{space}"
    body = f"""
    .shared .b32 s;
    neg.s32 %r5, %r1;
    mov.u64 %rd2, s;
    {"cvta.shared.u64 %rd2, %rd2;" if space != "shared" else ""}
    {"add.u64 %rd2, %rd1, 256;" if space == "global" else ""}
    setp.eq.u32 %p1, %r1, 0;
    @%p1 st{word}.u32 [%rd2], 100;
    bar.sync 0;
    atom{word}.{name} %r4, [%rd2], {operand};
    bar.sync 0;
    red{word}.relaxed.gpu.add.u32 [%rd2], 0;
    ld{word}.u32 %r3, [%rd2];
{STORE}""".replace(f"red{word}.relaxed.gpu.add", f"red.relaxed.gpu{word}.add")
    got = np.zeros(65, np.uint32)
    engine.run(entry(body), "k", [got], (1, 1, 1), (64, 1, 1), schedule=schedule)
    assert got[:64].tolist() == [last(64) % 2**32] * 64


@both
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_compare_and_swap(engine: Engine, bits: int, schedule: str) -> None:
    """A lock that a thread takes with it, and others wait for in a loop."""
    register = {16: "%h", 32: "%r", 64: "%rd"}[bits]
    body = f"""
    .shared .b64 lock; .shared .b32 count;
    st.shared.u64 [lock], 0;
    st.shared.u32 [count], 0;
    bar.sync 0;
take:
    atom.shared.cas.b{bits} {register}7, [lock], 0, 1;
    setp.ne.b{bits} %p1, {register}7, 0;
    @%p1 bra take;
    ld.shared.u32 %r3, [count];
    add.u32 %r3, %r3, 1;
    st.shared.u32 [count], %r3;
    membar.cta;
    st.shared.b{bits} [lock], 0;
{STORE}"""
    got = words(engine, entry(body), 40, schedule=schedule, most=50_000_000)
    assert sorted(got) == list(range(1, 41))


@both
def test_atomic_floats(engine: Engine, schedule: str) -> None:
    body = """
    cvt.rn.f32.u32 %f1, %r1;
    atom.global.add.f32 %f2, [%rd1], %f1;
    .reg .f64 %fd<3>;
    cvt.rn.f64.u32 %fd1, %r1;
    red.global.add.f64 [%rd1+8], %fd1;
    mov.b32 %r4, 0x40003c00;
    atom.global.add.noftz.f16x2 %r5, [%rd1+4], %r4;
"""
    got = np.zeros(4, np.uint32)
    engine.run(entry(body), "k", [got], (1, 1, 1), (100, 1, 1), schedule=schedule)
    assert got[:1].view(np.float32)[0] == sum(range(100))
    assert got[2:].view(np.float64)[0] == sum(range(100))
    assert got[1:2].view(np.float16).tolist() == [100, 200]

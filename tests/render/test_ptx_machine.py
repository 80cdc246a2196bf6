"""The machine that runs PTX is strict: texts that are wrong in one place are caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptx_machine import Fault, Machine
from samples import SAMPLES

from hal_cuda.render import PTXRenderer
from hal_kernel.interpreter import interpret

GRID, BLOCK = (2, 1, 1), (8, 1, 1)


def saxpy(text: str) -> list[Any]:
    y = np.arange(14, dtype=np.float32)
    arguments = {"y": y, "x": np.ones(14, np.float32), "a": 2.0, "n": 14}
    Machine(text, arguments, GRID, BLOCK).run()
    return y.tolist()


def histogram(text: str) -> list[Any]:
    bins = np.zeros(256, np.uint32)
    x = (np.arange(16) % 5).astype(np.uint8)
    Machine(text, {"bins": bins, "x": x, "n": 16}, GRID, BLOCK).run()
    return bins.tolist()


def matmul(text: str) -> list[Any]:
    n = 16
    c = np.zeros(n * n, np.float32)
    a, b = (np.arange(n * n, dtype=np.float32) % k for k in (7, 5))
    Machine(text, {"c": c, "a": a, "b": b, "n": n}, (1, 1, 1), (16, 16, 1)).run()
    return c.tolist()


RUNS = {"saxpy": saxpy, "histogram": histogram, "matmul": matmul}

# Where a text is spoilt, and by what.
SPOILT = [
    ("saxpy", "setp.lt.s32", "setp.le.s32", "out of bounds"),
    ("saxpy", "cvta.to.global.u64", "mov.u64", "mov.u64"),
    ("saxpy", "cvta.to.global.u64 %rd2", "cvta.to.shared.u64 %rd2", "unknown"),
    ("saxpy", "mul.wide.s32 %rd5, %r4, 4", "mul.wide.s32 %rd5, %r4, 2", "unaligned"),
    ("saxpy", "mul.wide.s32 %rd5, %r4, 4", "mul.wide.s32 %rd5, %r4, 8", "out of bounds"),
    ("saxpy", "mul.f32 %f3, %f1, %f2", "mul.f32 %f3, %f1, %f4", "before it is written"),
    ("saxpy", "mul.f32 %f3, %f1, %f2", "mul.f32 %f3, %f1, %r4", "not a f32"),
    ("saxpy", "mul.f32 %f3, %f1, %f2", "mul.f32 %f3, %f1, 2", "no float"),
    ("saxpy", "mul.f32 %f3, %f1, %f2", "mul.f32 %f3, %f1", "operands"),
    ("saxpy", "mul.f32", "mul.ftz.f32", "mul.ftz.f32"),
    ("saxpy", "mul.f32", "mul.f64", "not a f64"),
    ("saxpy", "add.s64", "add.s32", "not a s32"),
    ("saxpy", "ld.param.s32", "ld.param.f32", "is a s32"),
    ("saxpy", "[saxpy_param_n]", "[saxpy_param_m]", "saxpy_param_m"),
    ("saxpy", "%ctaid.x", "%laneid.x", "no such register"),
    ("saxpy", "bra $else1", "bra $else2", "no label"),
    ("saxpy", ".maxntid 1024, 1, 1", ".reqntid 4, 1, 1", "a block of"),
    ("saxpy", ".maxntid 1024, 1, 1", ".maxntid 4, 1, 1", "a block of"),
    ("saxpy", "    ret;\n", "    call sin;\n", "call"),
    ("saxpy", "    ret;\n", "    ret\n", "cannot be read"),
    ("histogram", "bar.sync 0", "bar.arrive 0", "bar.arrive"),
    ("histogram", "atom.relaxed.gpu.shared", "atom.shared", "not enough"),
    ("histogram", "atom.relaxed.gpu.shared.add.u32", "atom.relaxed.gpu.shared.add.s32", "unknown"),
    ("histogram", "atom.relaxed.gpu.shared", "atom.relaxed.cta.shared", "unknown"),
    ("histogram", "st.shared.u32", "st.global.u32", "out of bounds"),
    ("histogram", "[1024]", "[512]", "out of bounds"),
    ("matmul", "ld.shared.f32", "ld.shared.s32", "not a s32"),
]


@pytest.mark.parametrize(("name", "right", "wrong", "said"), SPOILT)
def test_a_wrong_text_is_a_fault(name: str, right: str, wrong: str, said: str) -> None:
    text = PTXRenderer().render(SAMPLES[name].lower())
    assert right in text
    with pytest.raises((Fault, ValueError), match=said):
        RUNS[name](text.replace(right, wrong))


# Wrong results, and no fault: what comparing with the interpreter is for.
CHANGED = [
    ("saxpy", "add.f32", "sub.f32"),
    ("saxpy", "%tid.x", "%ctaid.x"),
    ("histogram", "shared.add.u32", "shared.exch.b32"),
    ("histogram", "shared.add.u32", "shared.max.u32"),
    ("matmul", "add.f32", "sub.f32"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), CHANGED)
def test_a_wrong_operation_gives_a_wrong_result(name: str, right: str, wrong: str) -> None:
    text = PTXRenderer().render(SAMPLES[name].lower())
    assert right in text
    assert RUNS[name](text.replace(right, wrong)) != expected(name)


@pytest.mark.parametrize("name", RUNS)
def test_the_right_text_gives_the_right_result(name: str) -> None:
    assert RUNS[name](PTXRenderer().render(SAMPLES[name].lower())) == expected(name)


def expected(name: str) -> list[Any]:
    if name == "saxpy":
        return [float(k + 2) for k in range(14)]
    if name == "histogram":
        return [4, 3, 3, 3, 3] + [0] * 251
    n = 16
    a, b = (np.arange(n * n, dtype=np.float32) % k for k in (7, 5))
    c = np.zeros(n * n, np.float32)
    interpret(SAMPLES[name], c, a, b, vals=(n,), grid=1)
    result: list[Any] = c.tolist()
    return result


def test_shared_memory_that_nobody_has_written_is_a_fault() -> None:
    text = PTXRenderer().render(SAMPLES["matmul"].lower())
    kept = [line for line in text.splitlines(keepends=True) if "st.shared" not in line]
    with pytest.raises(Fault, match="nobody has written"):
        matmul("".join(kept))


def test_a_barrier_that_one_thread_misses_is_a_fault() -> None:
    text = PTXRenderer().render(SAMPLES["histogram"].lower())
    place = text.index("    bar.sync 0;")
    early = "    setp.eq.s32 %p1, %r1, 0;\n    @%p1 bra $early1;\n    bar.sync 0;\n$early1:\n"
    with pytest.raises(Fault, match="barrier"):
        histogram(text[:place] + early + text[place:])


def test_a_loop_that_does_not_end_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptx_machine.MOST_TURNS", 500)
    text = PTXRenderer().render(SAMPLES["saxpy"].lower())
    with pytest.raises(Fault, match="does not end"):
        saxpy(text.replace("    mov.u32 %r1", "$again9:\n    bra $again9;\n    mov.u32 %r1"))

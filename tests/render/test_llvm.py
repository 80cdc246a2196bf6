"""LLVM IR: threads become vector lanes, loops over threads end where the work does."""

from __future__ import annotations

import operator
import random
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builder import Builder
from samples import SAMPLES
from toolchains import LLVM

import hal_core as hal
from hal_core.dtypes import float16, float32
from hal_core.ir import Kernel, UOp
from hal_core.render import LLVMRenderer

# mypy: disable-error-code="no-untyped-def"


@pytest.fixture(scope="module")
def llvm(tmp_path_factory: pytest.TempPathFactory) -> LLVM:
    made = LLVM(tmp_path_factory.mktemp("llvm"))
    if made.missing:
        pytest.skip(made.missing)
    return made


def lanes(llvm: LLVM) -> int:
    """float32 numbers in one register of this processor."""
    features = llvm.llvm.get_host_cpu_features()
    return 8 if features.get("avx") else 4


# -- vectors


@hal.kernel
def tree(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]):
    part = hal.shared(hal.float32, 1024)
    t = hal.thread_idx(0)
    part[t] = x[hal.global_idx(0)]
    hal.barrier()
    half = hal.block_dim(0) // 2
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        hal.barrier()
        half = half // 2
    if t == 0:
        y[hal.block_idx(0)] = part[0]


@hal.kernel
def product(
    c: hal.Ptr[hal.float32], a: hal.ConstPtr[hal.float32], b: hal.ConstPtr[hal.float32],
    n: hal.int32,
):  # fmt: skip
    column = hal.global_idx(0)
    row = hal.global_idx(1)
    if row < n and column < n:
        total = 0.0
        for k in range(n):
            total += a[row * n + k] * b[k * n + column]
        c[row * n + column] = total


@hal.kernel(block=(256, 1, 1))
def largest(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], columns: hal.int32):
    row = hal.block_idx(0) * columns
    most = x[row]
    for k in range(hal.thread_idx(0), columns, 256):
        most = max(most, hal.exp(x[row + k]))
    y[hal.global_idx(0)] = most


@pytest.mark.parametrize(
    "kernel", [SAMPLES["matmul"], tree, product, largest], ids=lambda kernel: kernel.name
)
def test_threads_become_lanes(llvm: LLVM, kernel: Any) -> None:
    text = str(llvm.optimised(LLVMRenderer().render(kernel.lower()))[0])
    wide = [
        int(n) for n in re.findall(r"= (?:f\w+|.* @llvm\.f\w+\.v\d+f32).*<(\d+) x float>", text)
    ]
    assert wide and max(wide) >= lanes(llvm)
    for slow in ("masked.gather", "masked.scatter", "vector.memcheck"):
        assert slow not in text


def test_every_region_of_a_tiled_product_is_vectors_alone(llvm: LLVM) -> None:
    """256 threads are whole vectors: there is no rest to do one by one."""
    text = str(llvm.optimised(LLVMRenderer().render(SAMPLES["matmul"].lower()))[0])
    body = text[text.index("define ") : text.index("\n}")]
    assert not re.search(r"\b(load|store|fadd|fmul)( contract)? float ", re.sub(
        r"load float, ptr .*\n(?=.*insertelement|.*splat)", "", _without_broadcasts(body)
    ))  # fmt: skip


def _without_broadcasts(text: str) -> str:
    """One element in all lanes is loaded as one float."""
    spread = re.findall(r"insertelement <\d+ x float> poison, float (%\S+), i64 0", text)
    lines = text.split("\n")
    return "\n".join(
        line for line in lines if not any(line.strip().startswith(f"{v} = load") for v in spread)
    )


# -- the end of the loop over threads

COMPARE = {"LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
           "EQ": operator.eq, "NE": operator.ne}  # fmt: skip
EXTREME = [-(2**31), -(2**31) + 1, -3, -1, 0, 1, 2, 5, 11, 12, 13, 2**31 - 2, 2**31 - 1]
EXTREME += list(range(13))


class Guarded:
    """A store under conditions on thread, parameters and constants, in ANDs and IFs."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.b = b = Builder("guarded", "y: int32*, m: int32, n: int32")
        self.values = {"m": rng.choice(EXTREME), "n": rng.choice(EXTREME)}
        self.number: dict[UOp, Any] = {
            b.params["m"]: lambda t, i: self.values["m"],
            b.params["n"]: lambda t, i: self.values["n"],
            b.special("thread_idx"): lambda t, i: t,
            b.index(): lambda t, i: i,
        }
        self.tests: list[Any] = []
        blocks = []
        for _ in range(rng.randint(1, 2)):
            condition = self.condition()
            for _ in range(rng.randint(0, 2)):
                condition = b.op("AND", condition, self.condition())
            blocks.append(b.if_(condition))
        place = b.index()
        b.store("y", place, b.op("ADD", b.load("y", place), b.const(1)))
        for block in reversed(blocks):
            b.end(block)

    def operand(self) -> UOp:
        if self.rng.random() < 0.3:
            value = self.rng.choice(EXTREME)
            made = self.b.const(value)
            self.number[made] = lambda t, i: value
            return made
        return self.rng.choice(list(self.number))

    def condition(self) -> UOp:
        thread = self.rng.choice(list(self.number)[2:4])
        left, right = thread, self.operand()
        if self.rng.random() < 0.5:
            left, right = right, left
        op = self.rng.choice([*COMPARE, "LT", "LE", "GT", "GE"])
        a, b = self.number[left], self.number[right]
        self.tests.append(lambda t, i: COMPARE[op](a(t, i), b(t, i)))
        return self.b.op(op, left, right)


def test_no_thread_runs_that_should_not_and_every_other_does(llvm: LLVM) -> None:
    some = 0
    for seed in range(150):
        made = Guarded(seed)
        fixed = (6, 1, 1) if seed % 2 else None
        got = np.zeros(12, np.int32)
        llvm.run(made.b.kernel(fixed), {"y": got, **made.values}, (2, 1, 1), (6, 1, 1))
        expected = [int(all(test(i % 6, i) for test in made.tests)) for i in range(12)]
        assert got.tolist() == expected, LLVMRenderer().render(made.b.kernel(fixed))
        some += 0 < sum(expected) < 12
    assert some > 30


# -- what the processor has


def _copied(renderer: LLVMRenderer) -> tuple[Kernel, str]:
    b = Builder("copied", "y: float16*, z: float32*, h: const float16*, x: const float32*")
    i = b.index()
    b.store("z", i, b.cast(b.load("h", i), float32))
    b.store("y", i, b.cast(b.load("x", i), float16))
    kernel = b.kernel()
    return kernel, renderer.render(kernel)


def test_float16_by_the_processor_and_by_hand_is_the_same(tmp_path: Path) -> None:
    found = []
    h = np.arange(65536, dtype=np.uint16).view(np.float16)
    x = np.random.default_rng(0).integers(0, 2**32, 65536, dtype=np.uint32).view(np.float32)
    for half in (False, True):
        llvm = LLVM(tmp_path)
        if llvm.missing:
            pytest.skip(llvm.missing)
        features = llvm.llvm.get_host_cpu_features()
        if half and not (features.get("f16c") or features.get("neon")):
            pytest.skip("the processor does not convert float16")
        llvm.renderer = LLVMRenderer(half=half)
        kernel, text = _copied(llvm.renderer)
        assert ("half" in text) is half
        y, z = np.zeros(65536, np.float16), np.zeros(65536, np.float32)
        llvm.run(kernel, {"y": y, "z": z, "h": h, "x": x}, (256, 1, 1), (256, 1, 1))
        y[np.isnan(y)] = np.nan
        z[np.isnan(z)] = np.nan
        found.append((y.view(np.uint16), z.view(np.uint32)))
    for by_hand, by_processor in zip(*found, strict=True):
        np.testing.assert_array_equal(by_hand, by_processor)


def test_without_the_instruction_no_half_is_named(llvm: LLVM) -> None:
    """LLVM would call __extendhfsf2, which not every system has."""
    assert "half" not in _copied(LLVMRenderer())[1]
    assert "fpext half" in _copied(LLVMRenderer(half=True))[1]


# -- branches


def test_a_long_list_of_branches_is_rendered_in_linear_time() -> None:
    """Every ENDIF asked all lines before it for its ELSE."""

    def render(count: int) -> None:
        b = Builder("branches", "y: int32*, n: int32")
        for number in range(count):
            block = b.if_(b.op("LT", b.params["n"], b.const(number)))
            b.store("y", b.const(number), b.params["n"])
            b.end(block)
        text = LLVMRenderer().render(b.kernel())
        assert text.count(".else:") == count

    def seconds(count: int) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            render(count)
            best = min(best, time.thread_time() - start)
        return best

    assert seconds(3000) < 40 * seconds(300)

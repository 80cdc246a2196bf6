"""Gangs for the registers of each processor give the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toolchains import LLVM

import hal_core as hal
from hal_cpu.vectors import LLVMRenderer
from hal_cpu.vectors.width import WIDE, Registers
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"

AVX2, NEON = Registers(16, 32), Registers(32, 16)
Floats, Doubles = hal.Ptr[hal.float32], hal.Ptr[hal.float64]
Inputs, DoubleInputs = hal.ConstPtr[hal.float32], hal.ConstPtr[hal.float64]
Places = hal.ConstPtr[hal.int32]


@hal.kernel
def one_sum(y: Floats, x: Inputs, z: DoubleInputs, p: Places, n: hal.int32, w: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        s = hal.float32(0)
        for k in range(n):
            s += x[k * w + i]
        y[i] = s


@hal.kernel
def eight_sums(y: Floats, x: Inputs, z: DoubleInputs, p: Places, n: hal.int32, w: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        s0, s1, s2, s3 = y[i], y[i], y[i], y[i]
        s4, s5, s6, s7 = y[i], y[i], y[i], y[i]
        for k in range(n):
            v = x[k * w + i]
            s0, s1, s2, s3 = s0 + v, s1 - v, s2 + 2.0 * v, s3 - 2.0 * v
            s4, s5, s6, s7 = s4 + 3.0, s5 - 3.0, max(s6, v), min(s7, v)
        y[i] = s0 + s1 + s2 + s3 + s4 + s5 + s6 * 8.0 + s7 * 16.0


@hal.kernel
def of_doubles(y: Floats, x: Inputs, z: DoubleInputs, p: Places, n: hal.int32, w: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        s = hal.float64(0)
        t = hal.float64(1)
        for k in range(n):
            s += z[k * w + i]
            t += s
        y[i] = hal.float32(s + t)


@hal.kernel
def of_a_row(y: Floats, x: Inputs, z: DoubleInputs, p: Places, n: hal.int32, w: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < n:
        s = hal.float32(0)
        for k in range(p[j], p[j + 1]):
            s += x[k * w + i]
        y[j * w + i] = s


@pytest.mark.parametrize("registers", [WIDE, AVX2, NEON], ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize(
    "kernel", [one_sum, eight_sums, of_doubles, of_a_row], ids=lambda kernel: kernel.name
)
def test_gangs_of_any_processor_give_the_same(
    kernel: hal.KernelFunction, registers: Registers, tmp_path: Path
) -> None:
    lowered = kernel.lower()
    llvm = LLVM(tmp_path)
    if llvm.missing:
        pytest.skip(llvm.missing)
    llvm.renderer = LLVMRenderer(registers=registers)
    for w in (1, 7, 63, 64, 150, 300):
        n, random = 5, np.random.default_rng(w)
        x = random.integers(-9, 9, n * w).astype("f4")
        arrays = {"y": np.zeros(n * w, "f4"), "x": x, "z": x.astype("f8")}
        arrays["p"] = np.array([0, 2, 2, 5, 4, 5], "i4")
        expected = [array.copy() for array in arrays.values()]
        rows = n if kernel is of_a_row else 1
        grid, block = (-(-w // 64), rows, 1), (64, 1, 1)
        interpret(kernel, *expected, vals=(n, w), grid=grid, block=block)
        llvm.run(lowered, {**arrays, "n": n, "w": w}, grid, block)
        np.testing.assert_array_equal(arrays["y"], expected[0], f"{w}")

"""Drawn kernels with loops and branches do what the interpreter does, at any width."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn_kernels import THREADS, Leaving, Rows, Strided, conditions, guards
from toolchains import LLVM

from hal_cpu.vectors import LLVMRenderer
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel
from hal_kernel.ir.verify import verify

MADE = {
    "leaving": lambda seed: Leaving(seed, 37).kernel(),
    "strided": lambda seed: Strided(seed).kernel(),
    "conditions": conditions,
    "guards": guards,
}


def compared(llvm: LLVM, kernel: Kernel, n: int, block: int, note: str) -> None:
    x = np.array([7, -3, 5, 2, 11, -8, 1, 4] * 16, "i4")
    y = np.arange(-3, 253, dtype="i4")
    expected, arrays = y.copy(), {"y": y, "x": x}
    given = {name: arrays[name] for name in (p.name for p in kernel.signature.pointers)}
    others = [array for name, array in given.items() if name != "y"]
    interpret(kernel, expected, *others, vals=(n,), grid=1, block=block)
    llvm.run(kernel, {**given, "n": n}, (1, 1, 1), (block, 1, 1))
    np.testing.assert_array_equal(y, expected, note)


@pytest.mark.parametrize("width", [1, 4, None])
@pytest.mark.parametrize("kind", MADE)
def test_drawn_kernels(tmp_path: Path, kind: str, width: int | None) -> None:
    llvm = LLVM(tmp_path)
    llvm.renderer = LLVMRenderer(width=width)
    for seed in range(20):
        kernel = MADE[kind](seed)
        verify(kernel)
        block = kernel.block[0] if kernel.block else 23
        for n in (seed % 5 - 1, 7, 2**31 - 2, -(2**31)) if kind == "guards" else (seed % 5 - 1,):
            compared(llvm, kernel, n, block, f"{kind} {seed}")


def test_drawn_rows(llvm: LLVM) -> None:
    """Several blocks of a row may be one row of threads, and several workers share the blocks."""
    for seed in range(36):
        kernel = Rows(seed).kernel()
        verify(kernel)
        function = llvm.function(kernel)
        x = np.random.default_rng(5).integers(-40, 60, 64).astype("i4")
        for n, grid, block in ((3, (2, 3, 1), (155, 2, 1)), (6, (2, 3, 1), (155, 2, 1)),
                               (2, (1, 3, 1), (30, 2, 1)), (0, (1, 3, 1), (30, 2, 1))):  # fmt: skip
            y, expected = np.full((2, 3 * THREADS), 5, "i4")
            arguments = {"y": y, "x": x, "n": n}
            llvm.call(function, kernel, arguments, grid, block, workers=2 if n > 3 else 1)
            interpret(kernel, expected, x, vals=(n,), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"seed {seed}, n {n}")

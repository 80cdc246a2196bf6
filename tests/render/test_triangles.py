"""Loops whose end grows or falls from thread to thread do what the interpreter does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toolchains import LLVM

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Numbers = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]
MOST = 2**31 - 1


@hal.kernel
def falling(y: Numbers, x: Inputs, n: hal.int32, m: hal.int32):
    """A thread that has no iteration left would load from where no memory is."""
    i = hal.global_idx(0)
    if i < m:
        total = 0
        for k in range(n - i):
            total = total * 3 + x[k + i if k + i < n else 2_000_000_000]
        y[i] = total


@hal.kernel
def growing(y: Numbers, x: Inputs, n: hal.int32, m: hal.int32):
    i = hal.global_idx(0)
    if i < m:
        for k in range(-2, min(i + 1, n)):
            y[i] += (x[max(k, 0)] + 1) * (i - k)


@hal.kernel
def by_threads(y: Numbers, x: Inputs, n: hal.int32, m: hal.int32):
    """Two such loops."""
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    if i < m:
        total = 0
        for k in range(1, n // 2 + 3 - t):
            total = total * 5 + k
        for k in range(n - m, t - 2):
            total = total * 7 - k
        y[i] = total


@hal.kernel
def near_the_end(y: Numbers, x: Inputs, n: hal.int32, m: hal.int32):
    """With `n` near the ends of int32 the end of the loop wraps in some threads, or in all."""
    i = hal.global_idx(0)
    if i < m:
        total = 0
        for k in range(n - 5, n + i):
            total = total * 3 + (k & 7)
        for k in range(n - 8, min(n - i, n + 4)):
            total = total * 5 + (k & 7)
        y[i] = total


KERNELS = [falling, growing, by_threads, near_the_end]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_loops_with_an_end_of_each_thread_give_what_the_interpreter_gives(
    llvm: LLVM, kernel: Any
) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    numbers = (-9, 0, 1, 63, 64, 100, 200)
    if kernel is near_the_end:
        numbers = (70, MOST - 10, MOST - 400, -MOST + 9, -MOST + 100, -MOST + 400, -MOST - 1 + 12)
    for n in numbers:
        x = np.random.default_rng(7).integers(-99, 99, 256).astype("i4")
        for m, grid, block in ((200, 4, 64), (130, 30, 5), (70, 1, 128), (-1, 1, 16)):
            y, expected = np.full((2, 256), 5, "i4")
            arguments = {"y": y, "x": x, "n": n, "m": m}
            llvm.call(function, lowered, arguments, (grid, 1, 1), (block, 1, 1))
            interpret(kernel, expected, x, vals=(n, m), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"{n}, {m} in {block}")

"""Rows of a few threads, as the colours of pixels, do what the interpreter does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toolchains import LLVM

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Ints = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]
W = 3  # threads of a short row


@hal.kernel
def pixels(y: Ints, x: Inputs, n: hal.int32):
    c, i = hal.global_idx(0), hal.global_idx(1)
    if c < W and i < n:
        if c == 2:
            y[W * i + c] = x[W * i + c]
        else:
            y[W * i + c] = 255 - x[W * i + c] + y[W * i + c]


@hal.kernel
def returned(y: Ints, x: Inputs, n: hal.int32):
    c, i = hal.global_idx(0), hal.global_idx(1)
    if c > W - 1 or W * i >= W * n:
        return
    total = 0
    for k in range(W):
        total += x[k * W + c] * x[W * i + k]
    y[W * i + c] = total


@hal.kernel
def some_of_them(y: Ints, x: Inputs, n: hal.int32):
    c, i = hal.global_idx(0), hal.global_idx(1)
    if 0 < c <= 2 and W * i + c < W * n - 1 and not i < 1:
        y[W * i + c] = x[W * i - c]


@hal.kernel
def planes(y: Ints, x: Inputs, n: hal.int32):
    c, i = hal.global_idx(0), hal.global_idx(1)
    if not c >= W and i < n:
        k = i // 7
        y[c * n + i] = x[c * n + min(i + 1, n - 1)] * k + i % 7 if x[i] > 0 else c


@hal.kernel
def in_three_dimensions(y: Ints, x: Inputs, n: hal.int32):
    c, i, j = hal.global_idx(0), hal.global_idx(1), hal.global_idx(2)
    if c < W and i < n // 4 and j < 4:
        y[(j * (n // 4) + i) * W + c] = x[(j * (n // 4) + i) * W + c] + j


@hal.kernel
def two_short_axes(y: Ints, x: Inputs, n: hal.int32):
    c, i, j = hal.global_idx(0), hal.global_idx(1), hal.global_idx(2)
    if j < n // 4 and i < 4 and c < W:
        y[(4 * j + i) * W + c] = x[(4 * j + i) * W + c] - 9 * i + c


@hal.kernel
def two_short_axes_of_more(y: Ints, x: Inputs, n: hal.int32):
    c, i, j = hal.global_idx(0), hal.global_idx(1), hal.global_idx(2)
    if c < W and i < 4 and j < n // 4:
        total = 0
        for k in range(12):
            total += x[k] * x[(4 * j + i) * W + c] + k
        y[(4 * j + i) * W + c] = total


@hal.kernel
def many_operations(y: Ints, x: Inputs, n: hal.int32):
    c, i = hal.global_idx(0), hal.global_idx(1)
    if c < W and i < n:
        total = x[W * i + c]
        for k in range(10):
            total = (total ^ k) * (total + c) - (x[k] if x[k] > c else -total)
        y[W * i + c] = total


@hal.kernel(block=(4, 16, 1))
def of_fixed_blocks(y: Ints, x: Inputs, n: hal.int32):
    c, i = hal.global_idx(0), hal.global_idx(1)
    if c < W and i < n:
        y[W * i + c] = 2 * x[W * i + c]


@hal.kernel
def products(y: Ints, x: Inputs, n: hal.int32):
    c, i = hal.global_idx(0), hal.global_idx(1)
    if c < 8 and i < n // 8:
        total = 0
        for k in range(8):
            total += x[8 * i + k] * (c + k)
        y[8 * i + c] = total


@hal.kernel
def planes_of_bits(y: Ints, x: Inputs, n: hal.int32):
    c, i = hal.global_idx(0), hal.global_idx(1)
    if not c > 7 and not i >= n // 8:
        bits = 0
        for k in range(8):
            bits |= ((x[8 * i + k] >> c) & 1) << k
        y[8 * i + c] = bits


KERNELS = [
    pixels, returned, some_of_them, planes, in_three_dimensions, two_short_axes,
    two_short_axes_of_more, many_operations, of_fixed_blocks, products,
    planes_of_bits,
]  # fmt: skip
# Grids and blocks: one block along the short axes, several, blocks of fewer threads than the rows
# have, and launches of fewer threads.
SHAPES = [
    ((1, 40, 1), (3, 25, 1)), ((1, 3, 5), (3, 9, 4)), ((1, 1, 9), (3, 4, 28)),
    ((1, 1, 250), (8, 8, 1)), ((1, 1000, 1), (256, 1, 1)), ((2, 20, 4), (3, 40, 1)),
    ((3, 5, 1), (1, 200, 1)), ((1, 9, 2), (2, 64, 2)), ((1, 2, 3), (4, 1, 100)),
    ((2, 0, 1), (3, 9, 1)),
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_short_rows_give_what_the_interpreter_gives(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    for n in (-5, 0, 1, 17, 64, 1000):
        x = np.random.default_rng(abs(n)).integers(-99, 99, max(16, W * n)).astype("i4")
        for grid, block in SHAPES:
            if ("global_idx", 2) not in [node.arg for node in lowered.uops]:
                grid, block = (*grid[:2], 1), (*block[:2], 1)
            if kernel is of_fixed_blocks:
                block = (4, 16, 1)
            y, expected = np.full((2, x.size), 5, "i4")
            llvm.call(function, lowered, {"y": y, "x": x, "n": n}, grid, block, workers=3)
            interpret(kernel, expected, x, vals=(n,), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"{n} in {grid}, {block}")

"""Loops that the threads of a row share do what the interpreter does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builder import Builder
from toolchains import LLVM

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Numbers = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]
GRID, BLOCK = (2, 3, 1), (155, 2, 1)  # rows of groups of each size, and threads behind them
WIDE = 310
FEW = (1, 3, 1), (30, 2, 1)
THREADS = 6 * WIDE


@hal.kernel
def bags(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = 0
        for k in range(off[j], off[j + 1]):
            total += x[k] * x[(x[k] & 31) + i]
        y[j * w + i] = total


@hal.kernel
def greatest(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.block_idx(1) * hal.block_dim(1) + hal.thread_idx(1)
    if i >= w or j >= h:
        return
    most = x[off[j] + i]
    k = off[j] + 1
    while k < off[j + 1]:
        most = max(most, x[k + i])
        k += 1
    y[j * w + i] = most - off[j]


@hal.kernel
def neighbours(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = x[i]
        for k in range(w):
            n = x[j * 9 + k]
            if n < -20:
                break
            if n == 7:
                continue
            total += x[i + (n & 15)]
        y[j * w + i] = total


@hal.kernel
def kept_inside(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        first = off[j] - 20
        last = off[j] + 3
        if first < 0:
            first = 0
        if last > 30:
            last = 30
        total = 0
        for k in range(first, last):
            for m in range(first, k):
                total += x[m + i] - k
        y[j * w + i] = total // (last - first)


@hal.kernel
def between_keys(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w and hal.global_idx(1) == 0:
        low = 0
        high = h
        while high - low > 1:
            middle = (low + high) // 2
            if off[middle] <= 33:
                low = middle
            else:
                high = middle
        y[i] = x[i] * (33 - off[low]) + x[i + 1] * off[low]


@hal.kernel
def masked(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = 0
        count = 0
        for k in range(h):
            if x[j * 7 + k] > 0:
                total += x[j * 7 + k + i]
                count += 1
            else:
                total -= 1
        y[j * w + i] = total * 8 + count


@hal.kernel
def beside_the_greatest(y: Numbers, x: Inputs, off: Inputs, w: hal.int32, h: hal.int32):
    """The greatest element of a row is found once, the number of those like it by each group."""
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i >= w or j >= h:
        return
    most = x[j * w]
    for k in range(1, w):
        most = max(most, x[j * w + k])
    y[j * w + i] = most - x[j * w + i]
    count = 0
    most = most - 9
    for k in range(w):
        count += 1 if x[j * w + k] > most else 0
    y[j * w + i + w * h] = count + most


BY_HAND: list[Any] = [
    bags, greatest, neighbours, kept_inside, between_keys, masked, beside_the_greatest
]  # fmt: skip


@pytest.mark.parametrize("function", BY_HAND, ids=lambda function: function.name)
def test_rows_of_any_width_give_what_the_interpreter_gives(llvm: LLVM, function: Any) -> None:
    """`off` has no element more than the guards let through."""
    lowered = function.lower()
    compiled = llvm.function(lowered)
    x = np.random.default_rng(1).integers(-40, 60, 2000).astype("i4")
    off = np.cumsum([0, 3, 0, 9, 1, 17, 4], dtype="i4")
    for w in (0, 1, 6, 23, 129, 300):
        for h, grid, block in ((6, (10, 4, 1), (32, 2, 1)), (5, (1, 8, 1), (300, 1, 1))):
            y, expected = np.full((2, 2 * w * h), 5, "i4")
            given = {"y": y, "x": x, "off": off[: h + 1], "w": w, "h": h}
            llvm.call(compiled, lowered, given, grid, block)
            interpret(function, expected, x, off[: h + 1], vals=(w, h), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"w {w}, h {h}")


@pytest.mark.parametrize("step", [1, 2], ids=["one region", "several"])
def test_a_kernel_without_a_store_is_rendered(llvm: LLVM, step: int) -> None:
    b = Builder("idle", "y: int32*, x: const int32*, n: int32")
    total = b.var("total", b.const(0))
    loop = b.range(b.const(0), b.params["n"], b.const(step))
    b.set(total, b.op("ADD", b.get(total), b.load("x", loop)))
    if step == 2:
        b.set(b.var("own", b.index()), b.op("ADD", b.get(total), b.index()))
    b.end(loop)
    x = np.arange(8, dtype="i4")
    llvm.run(b.kernel(), {"y": x, "x": x, "n": 8}, (1, 1, 1), (16, 1, 1))

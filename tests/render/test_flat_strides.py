"""Threads that stride over a flat index do what the interpreter does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toolchains import LLVM, Toolchain

import hal_core as hal
from hal_core.geometry import MOST_ADDED
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Numbers = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]


@hal.kernel
def by_range(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    for k in range(hal.global_idx(0), w * h, hal.grid_dim(0) * hal.block_dim(0)):
        j = k // w
        i = k % w
        y[j * w + i] = 100 * x[k] + 10 * x[i] + x[j]


@hal.kernel
def by_while(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.block_idx(0) * hal.block_dim(0) + hal.thread_idx(0)
    while k <= w * h - 1:
        row = k // w
        y[k] = x[k - row * w] - 3 * x[(h - 1 - row) * w + k % w]
        k += hal.grid_dim(0) * hal.block_dim(0)


@hal.kernel
def interior(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    if hal.global_idx(0) >= w * h:
        return
    for k in range(hal.global_idx(0), w * h, hal.grid_dim(0) * hal.block_dim(0)):
        j = k // w
        i = k % w
        if 0 < i < w - 1 and 0 < j < h - 1:
            y[k] = x[k - 1] + x[k + 1] + x[k - w] + x[k + w] - x[i]
        else:
            y[k] = j


@hal.kernel
def wide(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    across = hal.int64(w)
    step = hal.int64(hal.grid_dim(0) * hal.block_dim(0))
    for k in range(hal.int64(hal.global_idx(0)), across * hal.int64(h), step):
        y[k] = x[k % across] + x[k // across] + hal.int32(k) // w


@hal.kernel
def of_uint32(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    for k in range(hal.global_idx(0), w * h, hal.grid_dim(0) * hal.block_dim(0)):
        y[k] = x[hal.int32(hal.uint32(k) % hal.uint32(w))] + hal.int32(hal.uint32(k + 1) // 40)


@hal.kernel
def from_a_number(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    """The numbers are below 0 for some threads, or all of them."""
    n = w * h if w > 0 else -100
    for k in range(hal.global_idx(0) - 40, n, hal.grid_dim(0) * hal.block_dim(0)):
        j = k // w
        if k >= h - 20:
            y[k + 40] += x[k % w] + 10 * j + 3 * ((k + w) // (h + 1)) + (k - 1) % w


@hal.kernel
def in_space(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(0)
    while k < 2 * w * h:
        z = k // (w * h)
        j = k // w % h
        y[k] = x[z] + x[j] + x[k % (w * h) % w] + x[k % 40]
        k += hal.grid_dim(0) * hal.block_dim(0)


@hal.kernel
def product(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    for k in range(hal.global_idx(0), w * h, hal.grid_dim(0) * hal.block_dim(0)):
        j = k // w
        i = k % w
        total = hal.int32(0)
        for m in range(h):
            total += x[j * h + m] * x[m * w + i]
        y[j * w + i] = total + j


@hal.kernel
def product_inside(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    n = w * h
    for k in range(hal.global_idx(0), n, hal.grid_dim(0) * hal.block_dim(0)):
        j = k // w
        i = k - j * w
        left = j * h
        if 0 < i < w - 1:
            total = hal.int32(0)
            for m in range(h):
                total += x[left + m] * x[m * w + i]
            if x[i] > 0:
                y[k] = total
            for m in range(h):
                y[k] += x[m] * x[m * w + i - 1]
        y[n + k] = left + i


@hal.kernel
def sum_of_strides(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    total = hal.global_idx(0)
    for k in range(hal.global_idx(0), w * h, hal.grid_dim(0) * hal.block_dim(0)):
        total += x[k] * x[k // w] + x[k % w]
    y[hal.global_idx(0)] = total


@hal.kernel
def rows_of_data(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    """Quotients by data, and of data."""
    for k in range(hal.global_idx(0), w * h, hal.grid_dim(0) * hal.block_dim(0)):
        c = x[k // w] // (w + 3) + k % (x[k % w] + 200)
        for m in range(h):
            y[k] = y[k] * 3 + x[m] * c
        y[k] -= c


@hal.kernel
def rolled(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    for k in range(hal.global_idx(0), w * h, hal.grid_dim(0) * hal.block_dim(0)):
        i = k % w
        j = k // w
        y[k] = x[j * w + (i - 5 + w) % w] + 3 * x[j * w + (i - h) % w] + 5 * x[(k - h + w) % w]


@hal.kernel
def counted_down(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    for k in range(w * h - 1 - hal.global_idx(0), -1, -hal.grid_dim(0) * hal.block_dim(0)):
        y[k] = x[k // w] * 10 + x[k % w]


IN_PARTS = [
    by_range, by_while, interior, wide, of_uint32, from_a_number, in_space, product,
    product_inside, sum_of_strides, rows_of_data, rolled,
]  # fmt: skip
KERNELS = [*IN_PARTS, counted_down]
IN_C = [by_range, interior, from_a_number, product_inside, sum_of_strides]
SHAPES = [(1, 3), (3, 5), (13, 6), (33, 4), (60, 4), (130, 3), (0, 3), (-5, 2)]


def data(w: int, h: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(w + 9).integers(-99, 99, 4 * abs(w * h) + 300).astype("i4")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_strides_over_a_flat_index_give_what_the_interpreter_gives(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    for w, h in SHAPES:
        x = data(w, h)
        for grid, block in ((1, 64), (2, 40), (3, 5)):
            y, expected = np.full((2, x.size), 5, "i4")
            llvm.call(
                function, lowered, {"y": y, "x": x, "w": w, "h": h}, (grid, 1, 1), (block, 1, 1)
            )
            interpret(kernel, expected, x, vals=(w, h), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"{w} x {h} in {grid} of {block}")


@pytest.mark.parametrize("kernel", IN_C, ids=lambda kernel: kernel.name)
def test_every_language_strides_over_a_flat_index(toolchain: Toolchain, kernel: Any) -> None:
    lowered = kernel.lower()
    for w, h in [(13, 6), (60, 4), (0, 3)]:
        x = data(w, h)
        y, expected = np.full((2, x.size), 5, "i4")
        toolchain.run(lowered, {"y": y, "x": x, "w": w, "h": h}, (2, 1, 1), (64, 1, 1))
        interpret(kernel, expected, x, vals=(w, h), grid=2, block=64)
        np.testing.assert_array_equal(y, expected, f"{w} x {h}")


@hal.kernel
def near_the_greatest(y: Numbers, b: hal.int32, n: hal.int32, w: hal.int32):
    for k in range(b + hal.global_idx(0), n, hal.grid_dim(0) * hal.block_dim(0)):
        y[k - b] = k // w + 7 * (k % w)


@hal.kernel
def far_and_wide(y: Numbers, b: hal.int64, n: hal.int64, w: hal.int64):
    step = hal.int64(hal.grid_dim(0) * hal.block_dim(0))
    for k in range(b + hal.int64(hal.global_idx(0)), n, step):
        y[k - b] = hal.int32((k // w + 7 * (k % w)) & 0xFFFFFFF)


def test_flat_indices_near_the_greatest_int32(llvm: LLVM) -> None:
    lowered = near_the_greatest.lower()
    function = llvm.function(lowered)
    last = 2**31 - MOST_ADDED
    for b in (0, last - 100, last - 64, last - 20, 2**31 - 101, 2**31 - 300, -50):
        n = min(b + 150, 2**31 - 1)
        for w in (1, 12, 20, 33, 2**30, 2**31 - 1):
            y = np.zeros(150, "i4")
            vals = {"b": b, "n": n, "w": w}
            llvm.call(function, lowered, {"y": y, **vals}, (2, 1, 1), (32, 1, 1))
            k = np.arange(b, n)
            expected = (k // w + 7 * (k % w)).astype("i4")
            np.testing.assert_array_equal(y[: n - b], expected, str(vals))


def test_wide_flat_indices_beyond_int32(llvm: LLVM) -> None:
    lowered = far_and_wide.lower()
    function = llvm.function(lowered)
    for b in (0, -50, 2**31 - 70, 2**31 - MOST_ADDED - 64, 2**32 - 5, 2**40, 2**62, 2**63 - 170):
        for w in (1, 12, 33, 2**31, 2**33 + 1, 2**62):
            y = np.zeros(150, "i4")
            vals = {"b": b, "n": b + 150, "w": w}
            llvm.call(function, lowered, {"y": y, **vals}, (2, 1, 1), (32, 1, 1))
            expected = [(k // w + 7 * (k % w)) & 0xFFFFFFF for k in range(b, b + 150)]
            assert y.tolist() == expected, vals

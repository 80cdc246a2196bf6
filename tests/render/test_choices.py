"""Numbers that an IF sets are what the interpreter says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toolchains import Toolchain

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Numbers = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]
INT_MIN = -(2**31)


@hal.kernel
def columns(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32, r: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        low = j - r
        high = j + r + 1
        if low < 0:
            low = 0
        if high > h:
            high = h
        total = 0
        for k in range(low, high):
            total += x[k * w + i]
        y[j * w + i] = total


@hal.func
def size_of(r: hal.int32) -> hal.int32:
    if r < 2:
        return 3
    return 2 * r


@hal.kernel
def filtered(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32, r: hal.int32):
    i = hal.global_idx(0)
    m = 1
    if h > 2:
        m = h
    if i < w:
        total = 0
        for k in range(size_of(r) % 7):
            total += k * x[i + k]
        for k in range(-min(m, 3), 2):
            total -= k * x[i + k + 3]
        y[i] = total


@hal.kernel
def clamped(y: Numbers, x: Inputs, w: hal.int64, h: hal.int64, r: hal.int32):
    """The clamps of a flat index of int64; the last one may wrap."""
    p = hal.int64(hal.global_idx(0))
    if p < w * h:
        j = p // w
        i = p - j * w
        total = 0
        for b in hal.unroll(3):
            jj = j + b - 1
            if jj < 0:
                jj = hal.int64(0)
            if jj >= h:
                jj = h - 1
            for a in range(3):
                ii = i + hal.int64(a) - 1
                if ii < 0:
                    ii = hal.int64(0)
                elif ii > w - 1:
                    ii = w - 1
                total += (3 * b + a + r) * x[jj * w + ii]
        y[p] = total


@hal.kernel
def chosen(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32, r: hal.int32):
    """Swaps, chains, numbers that wrap, that are read behind a loop, or set in part of it."""
    i = hal.global_idx(0)
    j = w
    if i < w * h:
        a, b = i, r
        if a > b:
            a, b = b, a
        if r < 0:
            c = i + 3
        elif r == 0:
            c = r - i
        else:
            c = r // 3
        last = w - 1
        if i >= w:
            last = w - 2
        if r <= i:
            j = r - 1
        d = hal.uint32(i)
        if d - hal.uint32(2) > hal.uint32(r):
            d = hal.uint32(r)
        e = hal.int64(r)
        if e + hal.int64(1) > hal.int64(2**31 - 1):
            e = hal.int64(-1)
        n = 0
        k = i
        while k < i + 5:
            step = 1
            if k % 2 == 0:
                step = 2
            if k > i + 2:
                j = k
            n += step * (k - i)
            k += step
        if i % 2 == 0:
            for q in range(2, 5):
                if q > r:
                    n = q
        y[i] = a + 3 * b + 5 * c + 7 * last + 11 * j + hal.int32(d) + hal.int32(e) + 13 * n


@hal.kernel
def of_data(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32, r: hal.int32):
    """An element is loaded only where the test allows it; a quotient is one only there."""
    i = hal.global_idx(0)
    if i < w * h:
        k = 0
        if i >= r:
            k = x[i - r]
        m = 5
        if k > 3:
            m = k
        if w > 0:
            m += i // w
        y[i] = m


KERNELS = [columns, filtered, clamped, chosen, of_data]
SHAPES = [(1, 1), (1, 7), (5, 3), (17, 4), (64, 2), (131, 2), (0, 3), (INT_MIN, 2), (-3, -5)]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_numbers_that_an_if_sets_are_what_the_interpreter_says(
    toolchain: Toolchain, kernel: Any
) -> None:
    lowered = kernel.lower()
    grid, block = ((5, 8, 1) if kernel.name == "columns" else (5, 1, 1)), (64, 1, 1)
    for w, h in SHAPES:
        for r in (0, 1, 2, 40, 2**31 - 1) if kernel is not of_data else (0, 1, 40):
            x = np.random.default_rng(r).integers(-9, 9, 512).astype("i4")
            y, expected = np.full((2, 320), 5, "i4")
            toolchain.run(lowered, {"y": y, "x": x, "w": w, "h": h, "r": r}, grid, block)
            interpret(kernel, expected, x, vals=(w, h, r), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"{w} x {h}, {r}")

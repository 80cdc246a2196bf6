"""Quotients and remainders of a flat index are what the interpreter says."""

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
def flat(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(0)
    if k < w * h:
        j = k // w
        i = k % w
        y[k] = 100 * x[j * w + i] + 10 * x[i] + j


@hal.kernel
def interior(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(0)
    if k < w * h:
        j = k // w
        i = k - j * w
        if 0 < i < w - 1 and 0 < j < h - 1:
            y[k] = x[k + 1] - x[k - 1] + x[k - w] + x[k + w]


@hal.kernel
def chosen(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(0)
    i = k % w
    if k < w * h:
        y[k] = x[k] - x[k // w * w + (i + 1) % w] + (x[k - 1] if i > 0 else 7)


@hal.kernel
def wrapped(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(0)
    if k < w * h:
        i = k % w
        j = k // w
        ahead = i + 2
        if ahead >= w:
            ahead -= w
        if ahead >= w:
            ahead = 0
        y[k] = x[(j - 1 + h) % h * w + (i - 1 + w) % w] + 3 * x[j * w + (i - j % 4 + w) % w]
        y[k] += 5 * x[(j + 1) % h * w + ahead] + 7 * x[min(max(i + j - 3, 0), w - 1)]


@hal.kernel
def shifted(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    """Rolls of rows, forwards, backwards, and around more than once."""
    k = hal.global_idx(0)
    n = w * h
    if k < n:
        i = k % w
        j = k // w
        y[k] = x[j * w + (i + w // 2) % w] + 3 * x[j * w + (i - h) % w] + 5 * x[(k - w) % n]
        y[k] += 7 * x[j * w + (i - h + w) % w] + 9 * x[(k - w + n) % n] + (i + 2 * h - 1) % w
        y[k] += 1000 * ((i - 3 * h) % w + 1) + (k - n) // w % 7


@hal.kernel
def shifted_in_a_block(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    t = hal.thread_idx(0)
    i = (t - h + w) % w
    if hal.global_idx(0) < w * h and i + 2 < w + 1:
        y[hal.global_idx(0)] = x[i] + 3 * x[t % w] + 5 * ((t % w - h + w) % w) + 7 * x[(t - h) % 50]


@hal.kernel
def wrapped_by_fifty(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(0)
    if k < w * h:
        i = k % 50
        y[k] = x[(i - 1 + 50) % 50] + 3 * x[(i + 51) % 50] + 5 * x[(i + 49) % 50] + k // 50


@hal.kernel
def in_space(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(0)
    if k >= w * h * 2:
        return
    z = k // (w * h)
    j = (k % (w * h)) // w
    i = (k // 1) % (w * h) % w
    y[k] = 1000 * z + 100 * j + x[j * w + i]
    if i < w - 2:
        y[k] += 5


@hal.kernel
def in_space_by_subtraction(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(0)
    if k >= w * h * 2:
        return
    z = k // (w * h)
    j = (k - z * w * h) // w
    i = k - h * (z * w) - w * j
    y[k] = 1000 * z + 100 * j + x[j * w + i] + 7 * (z * h * 3)
    if i < w - 2:
        y[k] += 5


@hal.kernel
def in_four_dimensions(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    """Each remainder is divided again, and the largest rows need not end with the smaller ones."""
    k = hal.global_idx(0)
    if k < w * h * 2:
        rest = k % (w * h + 3)
        inner = rest % (w + w)
        y[k] = (
            1000 * (k // (w * h + 3)) + 100 * (rest // (w + w)) + 10 * (inner // w) + x[inner % w]
        )


@hal.kernel
def by_numbered_blocks(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.block_idx(0) * 64 + hal.thread_idx(0) - 3
    if 0 <= k < w * h and hal.thread_idx(0) < 64:
        y[k] = 3 * (k // w) + x[k % w]


@hal.kernel
def from_a_number(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    """`k` is less than 0 for some threads, and all of them, and it wraps."""
    t = hal.global_idx(0)
    if t < w * h:
        y[t] = (t + w * 0x7FFFFF0) // w + (t - h) % w + (t + 1000 * h) // w + (t + h) % (w + h)


@hal.kernel
def wide(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.int64(hal.global_idx(0))
    if k < hal.int64(w * h):
        y[k] = hal.int32(k // hal.int64(w)) + x[k % hal.int64(w)]


@hal.kernel
def wide_differences(y: Numbers, x: Inputs, w: hal.int64, h: hal.int64):
    p = hal.int64(hal.global_idx(0))
    a = w * h
    if p < a + a:
        k = p // a
        j = (p - k * a) // w
        i = p - k * a - j * w
        y[p] = hal.int32(1000 * k + 100 * j) + x[j * w + i]
        if 0 < i < w - 1 and j > 0:
            y[p] += 3 * x[p - w] - x[p - 1] + 5 * x[p - a if p > a else hal.int64(0)]


@hal.kernel
def wide_wraps(y: Numbers, x: Inputs, w: hal.int64, h: hal.int32):
    """Rows that are wrapped, clamped and rolled in int64."""
    p = hal.int64(hal.global_idx(0))
    rows = hal.int64(h)
    if p < w * rows:
        j = p // w
        i = p % w
        y[p] = x[(j - 1 + rows) % rows * w + (i - 1 + w) % w] + 3 * x[j * w + (i + 2) % w]
        y[p] += 5 * x[min(max(j - 1, 0), rows - 1) * w + min(max(i + j - 3, 0), w - 1)]
        y[p] += 7 * x[j * w + (i - rows) % w] + 9 * x[(p - 7) % (w * rows)]
        y[p] += 11 * x[(p - w + w * rows) % (w * rows)] + hal.int32((p - 2 * w) // w)
        y[p] += hal.int32((i + 2 * rows - 1) % w - (hal.int64(hal.uint32(p) - hal.uint32(1)) % w))


@hal.kernel
def wide_sums_of_nine(y: Numbers, x: Inputs, w: hal.int64, h: hal.int64):
    """Counters are cast, and a product of counters wraps int32 before it is."""
    p = hal.int64(hal.global_idx(0))
    if p < w * h:
        j = p // w
        i = p % w
        total = 0
        for b in range(-1, 2):
            row = min(max(j + hal.int64(b), 0), h - 1) * w
            for a in range(-1, 2):
                total += (3 * b + a) * x[row + min(max(i + hal.int64(a), 0), w - 1)]
                far = i + hal.int64((a + 1) * 0x7FFFFFFF)
                total += hal.int32(min(max(far + 2, -9), 9))
        y[p] = total


@hal.kernel
def of_uint32(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.uint32(hal.global_idx(0))
    if k < hal.uint32(w * h):
        y[hal.global_idx(0)] = hal.int32(k // hal.uint32(w)) - x[hal.int32(k % hal.uint32(w))]


@hal.kernel
def by_constants(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(0)
    if k < w * h:
        a = k // 100 + k // 3
        y[k] = a + x[k & 63] + x[k >> 6] * x[k % 100] + hal.truncmod(k, 77)


@hal.kernel
def dependent(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    """A quotient is a divisor, and added to what is divided."""
    k = hal.global_idx(0)
    if k < w * h:
        j = k // w
        y[k] = k % (j + 40) + (k + j) // 50 + (k + j * w) % (w + 1) + (hal.thread_idx(0) - j * w)


@hal.kernel
def of_a_quotient(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    """A quotient is divided again, by numbers that may be 0 and less."""
    k = hal.int64(hal.global_idx(0))
    if k < hal.int64(2 * w * h):
        j = k // hal.int64(w)
        z = hal.int32(j) // h
        y[k] = 1000 * z + 100 * (hal.int32(j) % h) + x[hal.int32(k) % w] + z % (h - 1) // 2


@hal.kernel
def in_branches(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(0)
    if k < w * h:
        if x[k] > 0:
            y[k] = k // w
        else:
            y[k] = k % w
        y[k] += 100 * (k // w) + k % w


@hal.kernel
def of_neighbours(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    """Sums with a constant, below 0 for the first threads."""
    k = hal.global_idx(0)
    if k < w * h:
        left = (k - 1) // w * w + (k - 1) % w
        y[k] = 100 * x[(k + 1) // w] + 10 * x[(k - 2) % w] + x[(k + 7) % w] + left
        y[k] += (5 * k - 3 * x[k]) // w - x[k] % h + (k * 0x7654321) // (h + 1)
        y[k] += (k - 5) // w * 3 + (k - 100) // h + (k - 1) % w // 2 + (k - 20) % 40


KERNELS = [
    wrapped, wrapped_by_fifty, shifted, shifted_in_a_block,
    flat, interior, chosen, in_space, in_space_by_subtraction, in_four_dimensions,
    by_numbered_blocks, from_a_number, wide, wide_differences, wide_wraps,
    wide_sums_of_nine, of_uint32, by_constants, dependent,
    of_a_quotient, in_branches, of_neighbours,
]  # fmt: skip
SHAPES = [
    (1, 3),
    (3, 5),
    (4, 40),
    (7, 20),
    (31, 3),
    (32, 3),
    (33, 4),
    (64, 2),
    (130, 3),
    (0, 3),
    (-5, 2),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_quotients_of_a_flat_index(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    random = np.random.default_rng(0)
    for w, h in [*SHAPES, *([(-40, -2)] if kernel is from_a_number else [])]:
        x = random.integers(-99, 99, max(128, 2 * w * h)).astype("i4")
        count = max(8, 2 * w * h + 5)
        for block in ((64, 1, 1), (5, 1, 1)):
            grid = (-(-count // block[0]), 1, 1)
            y, expected = np.full((2, grid[0] * block[0] + 8), 5, "i4")
            llvm.call(function, lowered, {"y": y, "x": x, "w": w, "h": h}, grid, block)
            interpret(kernel, expected, x, vals=(w, h), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"{w} x {h} in {block}")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_quotients_of_a_flat_index_in_every_language(toolchain: Toolchain, kernel: Any) -> None:
    lowered = kernel.lower()
    for w, h in [(1, 3), (3, 5), (13, 6), (60, 4), (0, 3), (-5, 2)]:
        x = np.random.default_rng(w + 9).integers(-99, 99, max(128, 2 * w * h)).astype("i4")
        grid, block = (-(-max(8, 2 * w * h + 5) // 64), 1, 1), (64, 1, 1)
        y, expected = np.full((2, grid[0] * 64 + 8), 5, "i4")
        toolchain.run(lowered, {"y": y, "x": x, "w": w, "h": h}, grid, block)
        interpret(kernel, expected, x, vals=(w, h), grid=grid, block=block)
        np.testing.assert_array_equal(y, expected, f"{w} x {h}")


@hal.kernel
def beside_a_remainder(y: Numbers, x: Inputs, w: hal.int32, m: hal.int32):
    """`i + 40` wraps for the last threads."""
    k = hal.global_idx(0)
    i = (k + m) % w
    if i + 40 < 100:
        y[k] = x[(k + m) // w]


def test_what_is_added_to_a_remainder_wraps_as_any_sum(llvm: LLVM) -> None:
    lowered, x = beside_a_remainder.lower(), np.arange(64, dtype="i4")
    function = llvm.function(lowered)
    for w, m in [(33, 0), (2**31 - 1, 2**31 - 100), (2**31 - 2, 2**31 - 70)]:
        y, expected = np.full((2, 64), -5, "i4")
        arguments = {"y": y, "x": x, "w": w, "m": m}
        llvm.call(function, lowered, arguments, (1, 1, 1), (64, 1, 1))
        interpret(beside_a_remainder, expected, x, vals=(w, m), grid=(1, 1, 1), block=(64, 1, 1))
        np.testing.assert_array_equal(y, expected, f"{w}, {m}")


@hal.kernel
def ahead_of_the_row(y: Numbers, x: Inputs, w: hal.int32, m: hal.int32):
    """The remainder of `k - 1` is w - 1 for the first thread."""
    k = hal.global_idx(0)
    i = (k - 1) % w
    if i + 40 < 100:
        y[k] = x[(k - 1) // w & 63] + m


@hal.kernel
def back_from_the_row(y: Numbers, x: Inputs, w: hal.int32, m: hal.int32):
    k = hal.global_idx(0)
    i = (k - m) % w
    if i + 40 < 100:
        y[k] = x[(k % w - m + w) % w & 63]


@pytest.mark.parametrize("kernel", [ahead_of_the_row, back_from_the_row])
def test_what_is_added_to_a_remainder_of_a_negative_number_wraps_as_any_sum(
    llvm: LLVM, kernel: Any
) -> None:
    lowered, x = kernel.lower(), np.arange(64, dtype="i4")
    function = llvm.function(lowered)
    for w in (33, 2**30, 2**31 - 65536, 2**31 - 65535, 2**31 - 50, 2**31 - 1):
        for m in (0, 1, 2, 40, -3, 2**31 - 1, -(2**31), w - 5):
            y, expected = np.full((2, 64), -5, "i4")
            arguments = {"y": y, "x": x, "w": np.int32(w), "m": np.int32(m)}
            llvm.call(function, lowered, arguments, (1, 1, 1), (64, 1, 1))
            interpret(kernel, expected, x, vals=(w, m), grid=(1, 1, 1), block=(64, 1, 1))
            np.testing.assert_array_equal(y, expected, f"{w}, {m}")


@hal.kernel
def wide_sums(y: Numbers, x: Inputs, w: hal.int64, m: hal.int64):
    """Sums of int64 that wrap, or leave int32."""
    k = hal.int64(hal.global_idx(0))
    i = (k - m) % w
    y[k] = hal.int32((k + m) % w) + hal.int32((k + m + 5) // w) + hal.int32((k - 3 * m) % w)
    if i + 40 < 100:
        y[k] += x[(k % w - m + w) % w & 63] + x[(k - 1 + m) % m & 63]
    if k + m < w:
        y[k] += x[min(max(k + m - 1, 0), 63)] + x[(k + m) % 64]


def test_sums_of_int64_are_what_the_interpreter_says_at_their_limits(llvm: LLVM) -> None:
    lowered, x = wide_sums.lower(), np.arange(64, dtype="i4")
    function = llvm.function(lowered)
    ends = [2**31, 2**32, 2**40, 2**61, 2**62, 2**63]
    near = [s * (end + d) for end in ends for d in (-70, -40, -1, 0, 1, 30) for s in (1, -1)]
    numbers = [n for n in (0, 1, 2, 33, -1, *near) if -(2**63) <= n < 2**63]
    for w in (1, 13, 33, 100, 2**31 - 65537, *(n for n in numbers if n)):
        for m in numbers:
            y, expected = np.full((2, 64), -5, "i4")
            arguments = {"y": y, "x": x, "w": np.int64(w), "m": np.int64(m)}
            llvm.call(function, lowered, arguments, (1, 1, 1), (64, 1, 1))
            interpret(wide_sums, expected, x, vals=(w, m), grid=(1, 1, 1), block=(64, 1, 1))
            np.testing.assert_array_equal(y, expected, f"{w}, {m}")


@hal.kernel
def by_two_numbers(y: Numbers, x: Inputs, w: hal.int32, v: hal.int32, m: hal.int32):
    """Quotients by `v` are products, too, where `w` is small."""
    t = hal.global_idx(0)
    k = t + m
    y[4 * t] = k // w
    y[4 * t + 1] = k % w
    y[4 * t + 2] = k // v
    y[4 * t + 3] = k % v


def test_quotients_of_all_numbers_below_two_to_31(llvm: LLVM) -> None:
    lowered, x = by_two_numbers.lower(), np.zeros(1, "i4")
    function = llvm.function(lowered)
    random = np.random.default_rng(0)
    last = 2**31 - MOST_ADDED - 64  # the last m for which no number is too large
    large = [2**31 - 1, 2**30, 2**30 + 1, 2**16 + 1, 46341, *random.integers(12, 2**31, 20)]
    for v in map(int, large):
        for w in (1, 2, 3, 7, 11):
            for m in (0, v - 20, last // v * v - 20, last // w * w - 20, last, last + 1, -1):
                m = min(max(m, -1), 2**31 - 65)
                y = np.full(256, -5, "i4")
                arguments = {"y": y, "x": x, "w": w, "v": v, "m": m}
                llvm.call(function, lowered, arguments, (1, 1, 1), (64, 1, 1))
                k = np.arange(64) + m
                expected = np.stack([k // w, k % w, k // v, k % v], -1).ravel()
                np.testing.assert_array_equal(y, expected, f"{m} by {w} and {v}")


@hal.kernel
def of_moderate_numbers(y: hal.Ptr[hal.int64], x: Inputs, w: hal.int64, v: hal.int64):
    k = hal.int64(hal.global_idx(0))
    a = hal.int64(x[k])
    y[5 * k] = k // w
    y[5 * k + 1] = (a + hal.int64(x[k + 64])) // v
    y[5 * k + 2] = (a - v - v) % v
    y[5 * k + 3] = (a + v + 0x7FFFFFFF) // w % v
    y[5 * k + 4] = (k % w - 1 + w) % w - a % v


def test_sums_of_int64_below_two_to_48_are_divided(llvm: LLVM) -> None:
    lowered = of_moderate_numbers.lower()
    function = llvm.function(lowered)
    random = np.random.default_rng(0)
    ends = [2**31 - 1, -(2**31), -(2**31) + 1, 0, 1, -1]
    large = [2**31 - 1, 2**31, 2**30 + 1, 2**16 + 1, 46341, *random.integers(12, 2**31, 20)]
    unusable = [0, -1, -7, 2**31 + 1, 2**40, 2**63 - 1, -(2**63)]
    for v in map(int, [1, 2, 3, 7, *large, *unusable]):
        near = [s * v * m + d for s in (-1, 1) for m in (1, 2, 3) for d in (-1, 0, 1)]
        numbers = [n for n in [*ends, *near] if -(2**31) <= n < 2**31]
        x = random.choice([*numbers, *map(int, random.integers(-(2**31), 2**31, 40))], 128)
        for w in (1, 3, 11, 40, v):
            y, expected = np.full((2, 320), -5, "i8")
            arguments = {"y": y, "x": x.astype("i4"), "w": np.int64(w), "v": np.int64(v)}
            llvm.call(function, lowered, arguments, (1, 1, 1), (64, 1, 1))
            interpret(of_moderate_numbers, expected, x.astype("i4"), vals=(w, v), grid=1, block=64)
            np.testing.assert_array_equal(y, expected, f"{w}, {v}")


@hal.kernel
def by_a_shared_number(y: Numbers, x: Inputs, w: hal.int32, n: hal.int32, rest: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[i] // w if rest == 0 else x[i] % w


@hal.kernel
def by_a_shared_uint32(
    y: hal.Ptr[hal.uint32],
    x: hal.ConstPtr[hal.uint32],
    w: hal.uint32,
    n: hal.int32,
    rest: hal.int32,
):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[i] // w if rest == 0 else x[i] % w


@pytest.mark.parametrize("kernel", [by_a_shared_number, by_a_shared_uint32])
def test_divisions_by_a_number_that_a_row_shares(llvm: LLVM, kernel: Any) -> None:
    """Zero gives zero, and the least int32 by -1 is itself."""
    lowered = kernel.lower()
    function = llvm.function(lowered)
    low, dtype = (-(2**31), "i4") if kernel is by_a_shared_number else (0, "u4")
    high = low + 2**32 - 1
    random = np.random.default_rng(0)
    ends = [low, low + 1, high - 1, high]
    divisors = {
        *ends,
        0,
        1,
        2,
        3,
        7,
        641,
        65537,
        2**30 - 1,
        2**30 + 1,
        *random.integers(low, high, 20),
    }
    if low:
        divisors |= {-1, -2, -3, -7, -(2**30) - 1}
    for w in map(int, divisors):
        numbers = [
            *ends,
            0,
            1,
            2,
            *random.integers(low, high, 100),
            *(w * k for k in range(-9, 10)),
        ]
        numbers += [high // (w or 1) * w, low // (w or 1) * w]
        near = {int(number) + k for number in numbers for k in (-1, 0, 1)}
        x = np.array(sorted(number for number in near if low <= number <= high), dtype)
        grid = (-(-len(x) // 64), 1, 1)
        for rest in (0, 1):
            y, expected = np.full((2, len(x)), 5, dtype)
            values = {"x": x, "w": w, "n": len(x), "rest": rest}
            llvm.call(function, lowered, {"y": y, **values}, grid, (64, 1, 1))
            interpret(kernel, expected, x, vals=(w, len(x), rest), grid=grid, block=64)
            np.testing.assert_array_equal(y, expected, f"by {w}")


@hal.kernel
def where_data_say(y: Numbers, x: Inputs, n: hal.int32, w: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for k in range(hal.thread_idx(0)):
            if x[i] > 10:
                total = total * 3 + x[k % w]
            total += k
        y[i] = total


@hal.kernel
def by_unsigned_numbers(y: Numbers, x: Inputs, n: hal.int32, w: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        first = w + 1
        if x[i] > 45:
            first = w + 2
        total = 0
        for k in range(x[i] + 40):
            if k % 3 == 1:
                total += x[hal.int32(hal.uint32(first) % hal.uint32(w))]
        y[i] = total


@hal.kernel
def beside_a_quotient(y: Numbers, x: Inputs, n: hal.int32, w: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        place = i
        if x[i] > 10:
            place = i + hal.int32(hal.uint64(n + 5) // hal.uint64(w)) % 2
        if x[i] > 10:
            y[i] = x[place]


@pytest.mark.parametrize("kernel", [where_data_say, by_unsigned_numbers, beside_a_quotient])
def test_threads_that_divide_where_data_say_load_what_the_first_does_not(
    llvm: LLVM, kernel: Any
) -> None:
    """LLVM 22 computed the address in the first lane of a vector, which may not run the IF.

    LLVM 15 does so in PoCL, with the last of these kernels.
    """
    lowered = kernel.lower()
    for n in (20, 100):
        x = np.random.default_rng(n).integers(0, 50, n + 1).astype("i4")
        for w in (7, n):
            y, expected = np.full((2, n), 5, "i4")
            llvm.run(lowered, {"y": y, "x": x, "n": n, "w": w}, (1, 1, 1), (100, 1, 1))
            interpret(kernel, expected, x, vals=(n, w), grid=1, block=100)
            np.testing.assert_array_equal(y, expected, f"{n} by {w}")


@hal.kernel
def by_low_bits(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for k in range(x[i] + 40):
            if x[k & 63] > 20:
                total += x[4 * i + (k & 3)] + x[i + k % 4] * 3
        y[i] = total


@hal.kernel
def by_narrow_numbers(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for k in range(x[i] * 13):
            if x[k & 63] > 20:
                total += x[i + hal.int32(hal.uint8(k + 3))] - x[i + hal.truncmod(k, 4)]
        y[i] = total


@pytest.mark.parametrize("kernel", [by_low_bits, by_narrow_numbers])
def test_loops_load_by_the_low_bits_of_their_counters(llvm: LLVM, kernel: Any) -> None:
    """LLVM 22 took them for elements beside each other, in any vector of iterations."""
    lowered, n = kernel.lower(), 100
    x = np.random.default_rng(0).integers(0, 50, 4 * n + 256).astype("i4")
    y, expected = np.full((2, n), 5, "i4")
    llvm.run(lowered, {"y": y, "x": x, "n": n}, (1, 1, 1), (n, 1, 1))
    interpret(kernel, expected, x, vals=(n,), grid=1, block=n)
    np.testing.assert_array_equal(y, expected)


@hal.kernel
def hashed(y: Numbers, x: Inputs, n: hal.int32, factor: hal.int32, w: hal.int32):
    k = hal.global_idx(0)
    y[k] = 100 * x[factor * k % n] + k // w


def test_a_number_that_wraps_has_a_remainder_within_the_array(toolchain: Toolchain) -> None:
    """Products divide by `n`, too, and an index is computed in 64 bits."""
    x = np.arange(7, dtype="i4")
    for factor in (1, 40503 << 12, -(2**31)):
        y, expected = np.full((2, 64), -5, "i4")
        arguments = {"y": y, "x": x, "n": 7, "factor": factor, "w": 5}
        toolchain.run(hashed.lower(), arguments, (1, 1, 1), (64, 1, 1))
        vals = (7, factor, 5)
        interpret(hashed, expected, x, vals=vals, grid=(1, 1, 1), block=(64, 1, 1))
        np.testing.assert_array_equal(y, expected, str(factor))


Floats = hal.Ptr[hal.float32]
FloatInputs = hal.ConstPtr[hal.float32]


@hal.kernel
def product(y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32):
    k = hal.global_idx(0)
    if k < n * w:
        row = k // w
        col = k % w
        total = hal.float32(0)
        for i in range(n):
            total += a[row * n + i] * b[i * w + col]
        y[k] = total


@hal.kernel
def product_of_running(y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32):
    k = hal.global_idx(0)
    if k >= n * w:
        return
    p = (k // w) * n
    q = k - (k // w) * w
    total = hal.float32(0)
    i = 0
    while i < n:
        total += a[p] * b[q]
        p += 1
        q += w
        i += 1
    y[k] = total


@hal.kernel
def product_by_tests(y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32):
    k = hal.global_idx(0)
    row = k // w
    col = k % w
    if row < n and col < w:
        total = hal.float32(0)
        for i in range(n):
            total += a[row * n + i] * b[i * w + col]
        y[row * w + col] = total


@hal.kernel
def product_with_a_bias(y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32):
    """Rows of 64, and two loops."""
    k = hal.global_idx(0)
    if k < n * w:
        first = hal.float32(0)
        for i in range(n):
            first += a[k // w * n + i] * b[i * w + k % w]
        second = hal.float32(0)
        for i in range(n):
            second += a[(k >> 6) * 0 + i] * b[k & 63 if (k & 63) < n * w else 0]
        y[k] = first + second + b[k % w]


@hal.kernel
def batched(y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32):
    k = hal.global_idx(0)
    if k < n * w:
        z = k // (n * w)
        row = k % (n * w) // w
        total = hal.float32(0)
        for i in range(n):
            total += a[z + row * n + i] * b[i * w + k % w]
        y[k] = total


@hal.kernel
def product_in_place(y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32):
    k = hal.global_idx(0)
    if k < n * w:
        for i in range(n):
            y[k] += a[k // w * n + i] * b[i * w + k % w]


@hal.kernel
def product_from_zero(y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32):
    k = hal.global_idx(0)
    if k >= n * w:
        return
    row = k // w
    col = k - row * w
    y[row * w + col] = 0.0
    i = 0
    while i < n:
        y[row * w + col] = y[row * w + col] + a[row * n + i] * b[i * w + col]
        i += 1
    y[k] = 2.0 * y[k]


@hal.kernel
def product_by_tests_in_place(
    y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32
):
    k = hal.global_idx(0)
    row = k // w
    col = k % w
    for i in range(n):
        if row < n and col < w - 1 and col > 0:
            y[k] += a[row * n + i] * b[i * w + col - 1]


@hal.kernel
def batched_in_place(y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32):
    k = hal.global_idx(0)
    if k < n * w:
        for z in range(n // 2):
            for i in range(n):
                y[k] = max(y[k], a[k // w * n + i] * b[i * w + k % w] + hal.float32(z))


@hal.kernel
def behind_common_work(y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32):
    """The bound of the loop is computed for the block, outside of its threads."""
    k = hal.global_idx(0)
    if k < n * w:
        total = hal.float32(0)
        for i in range(min(hal.grid_dim(0) + n, n)):
            total += a[k // w * n + i] * b[i * w + k % w]
        y[k] = total


@hal.kernel
def divided_by_the_loop(y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32):
    """The loop changes divisors and what is divided, so the row has no parts by these."""
    k = hal.global_idx(0)
    if k < n * w:
        total = hal.float32(0)
        for i in range(n):
            total += a[k // w * n + i] * b[i * w + k % w]
            total += a[i] * hal.float32(k // (i + 1) + (k + i) % w)
        y[k] = total


@hal.kernel
def circular(y: Floats, a: FloatInputs, b: FloatInputs, n: hal.int32, w: hal.int32):
    k = hal.global_idx(0)
    if k < n * w:
        total = hal.float32(0)
        for i in range(n):
            total += a[i] * b[(k + 3 * i) % w] + 2.0 * b[(k % w - i + w) % w]
        y[k] = total


PRODUCTS = [
    circular,
    behind_common_work,
    divided_by_the_loop,
    product,
    product_of_running,
    product_by_tests,
    product_with_a_bias,
    batched,
    product_in_place,
    product_from_zero,
    product_by_tests_in_place,
    batched_in_place,
]


@hal.kernel
def by_a_parameter_and_by_its_number(
    y: Numbers, x: Inputs, a: hal.int32, b: hal.int32, c: hal.int32, d: hal.int32, e: hal.int32,
    f: hal.int32, g: hal.int32, h: hal.int32, p: hal.int32, q: hal.int32, w: hal.int32,
    s: hal.int32,
):  # fmt: skip
    k = hal.global_idx(0)
    i = k % w
    y[k] = x[i] + 100 * x[(i + s) % 12]


def test_a_parameter_is_not_the_constant_that_is_its_number(llvm: LLVM) -> None:
    """`w` is parameter 12: (k % w + s) % 12 was computed as (k + s) % 12."""
    lowered = by_a_parameter_and_by_its_number.lower()
    x, values = np.arange(64, dtype="i4") ** 2, dict.fromkeys("abcdefghpq", 0)
    for w, s in [(13, 1), (20, 5), (12, 3), (37, 0)]:
        y, expected = np.zeros((2, 256), "i4")
        llvm.run(lowered, {"y": y, "x": x, **values, "w": w, "s": s}, block=(256, 1, 1))
        interpret(lowered, expected, x, vals=(*[0] * 10, w, s), grid=1, block=256)
        np.testing.assert_array_equal(y, expected, f"{w}, {s}")


@pytest.mark.parametrize("kernel", PRODUCTS, ids=lambda kernel: kernel.name)
def test_loops_by_a_flat_index(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    # The second loop of one gathers, threads of another divide, and the last wraps in its loop.
    function = llvm.function(lowered)
    random = np.random.default_rng(0)
    for n, w in [(3, 130), (5, 64), (33, 33), (40, 3), (9, 1), (4, 0), (3, -5)]:
        a = random.integers(-9, 9, n * n + 64).astype("f4")
        b = random.integers(-9, 9, max(64, n * w)).astype("f4")
        for block in ((64, 1, 1), (160, 1, 1), (5, 1, 1)):
            grid = (max(1, -(-n * w // block[0])), 1, 1)
            y, expected = np.full((2, grid[0] * block[0] + 8), 5, "f4")
            arguments = {"y": y, "a": a, "b": b, "n": n, "w": w}
            llvm.call(function, lowered, arguments, grid, block)
            interpret(kernel, expected, a, b, vals=(n, w), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"{n} x {w} in {block}")


@hal.kernel
def by_powers_of_two(y: Numbers, x: Inputs, n: hal.int32):
    k = hal.global_idx(0)
    if k < n:
        wide = (hal.int64(k) - 9) & hal.int64(3)
        part = hal.int32((hal.uint32(k) * hal.uint32(3)) % hal.uint32(8))
        y[k] = x[k % 4] + 3 * x[(2 * k - 7) & 7] + 5 * x[wide] + 7 * x[part] + 9 * x[(k - 99) % 8]


def test_low_bits_of_an_index(llvm: LLVM) -> None:
    lowered = by_powers_of_two.lower()
    function, x = llvm.function(lowered), np.arange(8, dtype="i4") ** 5
    for n, block in [(1, 64), (77, 64), (100, 5), (1000, 256)]:
        y, expected = np.full((2, n), 5, "i4")
        grid, shape = (-(-n // block), 1, 1), (block, 1, 1)
        llvm.call(function, lowered, {"y": y, "x": x, "n": n}, grid, shape)
        interpret(by_powers_of_two, expected, x, vals=(n,), grid=grid, block=shape)
        np.testing.assert_array_equal(y, expected)

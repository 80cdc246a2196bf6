"""Kernels on elements of one and two bytes, as of images and texts, beside the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toolchains import LLVM

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Bytes = hal.Ptr[hal.uint8]
Shorts = hal.Ptr[hal.int16]
ByteInputs = hal.ConstPtr[hal.uint8]
ShortInputs = hal.ConstPtr[hal.int16]
ACROSS = (-1, 0, 1, 1, 1, 0, -1, -1)
DOWN = (-1, -1, -1, 0, 1, 1, 1, 0)


@hal.kernel
def largest(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        best = 0
        for k in range(1, h):
            if x[k * w + i] > x[best * w + i]:
                best = k
        y[i] = hal.uint8(best)


@hal.kernel
def last_where_positive(y: Shorts, x: ShortInputs, w: hal.int32, h: hal.int32):
    """A place of -1 is kept from loads by a test."""
    i = hal.global_idx(0)
    if i >= w:
        return
    found = -1
    total = hal.int16(0)
    for k in range(h):
        if x[k * w + i] > 100:
            found = k
        if found >= 0:
            total += x[found * w + i]
    y[i] = total


@hal.kernel
def through_states(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        state = x[i]
        for k in range(h):
            state = x[(hal.int32(state) * h + k) % (w * h)]
        y[i] = state


@pytest.mark.parametrize(
    "kernel", [largest, last_where_positive, through_states], ids=lambda kernel: kernel.name
)
def test_narrow_elements_at_a_place_that_a_loop_keeps(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    dtype = "i2" if kernel is last_where_positive else "u1"
    for w, h in [(1, 1), (5, 3), (64, 0), (64, 7), (200, 30)]:
        x = np.random.default_rng(w).integers(0, 120, w * max(1, h)).astype(dtype)
        y, expected = np.full((2, w + 70), 5, dtype)
        for block in ((64, 1, 1), (5, 1, 1)):
            grid = (-(-w // block[0]), 1, 1)
            llvm.call(function, lowered, {"y": y, "x": x, "w": w, "h": h}, grid, block)
            interpret(kernel, expected, x, vals=(w, h), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"{w} x {h} in {block}")


@hal.kernel
def nearest(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    """The nearest of 8 colours, which a row loads too."""
    i = hal.global_idx(0)
    if i < w:
        least = 1 << 30
        found = 0
        for k in range(8):
            total = 0
            for c in range(3):
                d = hal.int32(x[3 * i + c]) - hal.int32(x[3 * k + c])
                total += d * d
            if total < least:
                least = total
                found = k
        y[i] = hal.uint8(found)


@hal.kernel
def nearest_of_some(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    """Pairs counted from the end, and a choice in place of an if."""
    i = hal.global_idx(0)
    if i < w:
        least = 1 << 30
        found = hal.int32(200)
        for k in range(1, h):
            pair = x[3 * w - 2 * i :]
            d = abs(hal.int32(pair[0]) - hal.int32(x[k]))
            d += abs(hal.int32(pair[1]) - hal.int32(x[k + 1]))
            found = k if d < least else found
            least = min(least, d)
        y[i] = hal.uint8(found)


@hal.kernel
def first_greatest(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        most = -200
        found = 0
        for k in range(h):
            if x[2 * i + k] > most:
                most = x[2 * i + k]
                found = k
        y[i] = found


@hal.kernel
def greatest_sum(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], w: hal.int32, h: hal.int32):
    """Compilers make vectors along `k`."""
    i = hal.global_idx(0)
    if i < w:
        most = -200
        total = 0
        for k in range(h):
            most = max(most, x[2 * i] ^ x[k])
            total += x[2 * i + 1] & x[k]
        y[i] = most + total


@hal.kernel
def nearest_of_one_colour(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    """Vectors would take one byte of three from memory one by one."""
    i = hal.global_idx(0)
    if i < w:
        least = 1 << 30
        found = 0
        for k in range(h):
            d = abs(hal.int32(x[3 * i + 1]) - hal.int32(x[k]))
            if d < least:
                least = d
                found = k
        y[i] = hal.uint8(found)


@pytest.mark.parametrize(
    "kernel",
    [nearest, nearest_of_some, first_greatest, greatest_sum, nearest_of_one_colour],
    ids=lambda kernel: kernel.name,
)
def test_each_thread_looks_for_the_nearest(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    kind = "i4" if kernel in (first_greatest, greatest_sum) else "u1"
    for w, h in [(0, 3), (1, 0), (5, 1), (64, 2), (77, 0), (200, 30), (300, 7)]:
        x = np.random.default_rng(w).integers(0, 120, 3 * w + 40).astype(kind)
        y, expected = np.full((2, w + 70), 5, kind)
        for block in ((64, 1, 1), (5, 1, 1), (300, 1, 1)):
            grid = (-(-w // block[0]), 1, 1) if w else (1, 1, 1)
            llvm.call(function, lowered, {"y": y, "x": x, "w": w, "h": h}, grid, block)
            interpret(kernel, expected, x, vals=(w, h), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"{w} x {h} in {block}")


@hal.kernel
def channels(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    """`c` is compared in each way, with constants beyond its values, too."""
    i = hal.global_idx(0)
    if i < w:
        c = i % 4
        t = hal.int64(hal.thread_idx(0)) & 7
        v = 255 - x[i] if c != 3 else x[i]
        if c == 0 or t > 5 or c >= 300 or c < -1:
            v ^= 64
        if 1 < c <= 2 and i & 255 != 9:
            v += hal.uint8(c)
        if hal.uint32(c) > 2 or hal.int64(c) < 1:
            v ^= 2
        y[i] = v


def test_low_bits_of_an_index_are_compared(llvm: LLVM) -> None:
    lowered = channels.lower()
    function = llvm.function(lowered)
    for n, block in [(1, 64), (77, 64), (100, 5), (1000, 256), (5000, 300)]:
        x = np.arange(n, dtype="u1")
        y, expected = np.full((2, n), 5, "u1")
        grid, shape = (-(-n // block), 1, 1), (block, 1, 1)
        llvm.call(function, lowered, {"y": y, "x": x, "w": n, "h": 0}, grid, shape)
        interpret(channels, expected, x, vals=(n, 0), grid=grid, block=shape)
        np.testing.assert_array_equal(y, expected)


@hal.kernel
def by_table(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        y[i] = x[hal.int32(x[i]) % w] ^ 1


@hal.kernel(block=(64, 1, 1))
def by_shared_table(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    table = hal.shared(hal.uint8, 128)
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    table[t] = 3 * hal.uint8(t)
    table[t + 64] = hal.uint8(t)
    hal.barrier()
    if i < w:
        k = hal.int32(x[i])
        if k > 127:
            k = 127
        y[i] = table[k]


@hal.kernel
def scattered(y: Shorts, x: ShortInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        y[hal.int32(x[i] & 1) * w + i] = x[i]


@hal.kernel
def with_floats(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        f = hal.float32(x[i]) * 0.77
        k = hal.int32(f)
        y[i] = hal.uint8(f * hal.float32(x[k % w]))


@hal.kernel
def beside_each_other(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    """Load where `x[h]` says, which is the same for the whole row."""
    i = hal.global_idx(0)
    if i < w - 9:
        y[i] = x[i + hal.int32(x[h] & 7)]


@hal.kernel
def turned(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if (i ^ 40) < w and i < w:
        y[i] = x[i ^ (h + 40)]


@hal.kernel
def with_bits_of_a_value(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        y[i] = x[i] ^ hal.uint8(i & h ^ 7)


@hal.kernel
def of_records(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w // 12:
        y[i] = x[12 * i + 4] - x[12 * i]


@hal.kernel
def distances_of_records(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    """Many operations, but few for each byte."""
    i = hal.global_idx(0)
    if i < w // 12:
        total = 0
        for c in range(12):
            d = hal.int32(x[12 * i + c]) - hal.int32(x[c])
            total += d * d
        y[i] = hal.uint8(total)


@hal.kernel
def of_pixels(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w // 12:
        y[i] = x[3 * i + 2] - x[3 * i]


@hal.kernel
def turned_by_90_degrees(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    """Rows of seven from the last one on."""
    i = hal.global_idx(0)
    if i < w // 7:
        y[i] = x[(w // 7 - 1 - i) * (h + 7) + 2]


@hal.kernel
def transposed_colours(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w // 9:
        for c in range(3):
            y[3 * i + c] = x[(i * (h + 3) + 1) * 3 + c]


@hal.kernel
def back_from_the_end(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w // 5:
        y[i] = x[w - 1 - i * (h + 5)]


@hal.kernel
def colours_of_a_row(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    """The offset of the row is a product, which the row shares."""
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w // 3:
        for c in range(3):
            y[3 * i + c] = x[(j * w + (w // 3 - 1 - i)) * 3 + c]


@hal.kernel
def neighbours_by_tables(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    """What all threads load of a table is no data of a thread."""
    i = hal.global_idx(0)
    if i < w - 17:
        bits = hal.uint8(0)
        for k in range(8):
            bits <<= 1
            if x[(ACROSS[k] + 1) * (h + 7) + i + DOWN[k] + 1] >= x[i]:
                bits |= 1
        y[i] = bits


@hal.kernel
def swapped_colours(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w // 4:
        for k in range(4):
            y[4 * i + k] = x[4 * i + DOWN[k + 3] + 1 + k // 3]


@hal.kernel
def by_a_stride(y: Bytes, x: ByteInputs, w: hal.int32, h: hal.int32):
    """A compiler asks whether the stride is 1."""
    i = hal.global_idx(0)
    if i < w:
        y[i] = x[i * (h + 1)]


@pytest.mark.parametrize("kernel", [
    by_table, by_shared_table, scattered, turned, of_records, distances_of_records,
    turned_by_90_degrees, transposed_colours, back_from_the_end, with_floats, beside_each_other,
    with_bits_of_a_value, of_pixels, colours_of_a_row, by_a_stride, neighbours_by_tables,
    swapped_colours,
], ids=lambda kernel: kernel.name)  # fmt: skip
def test_bytes_that_are_no_neighbours(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    dtype = "i2" if kernel is scattered else "u1"
    for w in (1, 9, 64, 77, 1000):
        x = np.random.default_rng(w).integers(0, 255, w).astype(dtype)
        y, expected = np.full((2, 2 * w + 70), 5, dtype)
        grid, block = (-(-w // 64), 1, 1), (64, 1, 1)
        llvm.call(function, lowered, {"y": y, "x": x, "w": w, "h": 0}, grid, block)
        interpret(kernel, expected, x, vals=(w, 0), grid=grid, block=block)
        np.testing.assert_array_equal(y, expected, str(w))


@hal.kernel
def greatest_of_rows(y: hal.Ptr[hal.int32], x: ByteInputs, w: hal.int32, h: hal.int32):
    j = hal.global_idx(0)
    if j < h:
        most = hal.uint8(0)
        for k in range(w):
            most = max(most, x[j * w + k])
        y[j] = hal.int32(most)


@hal.kernel
def numbers_of_rows(y: hal.Ptr[hal.int32], x: ShortInputs, w: hal.int32, h: hal.int32):
    j = hal.global_idx(0)
    if j < h:
        row = x[j * w :]
        least = hal.int16(100)
        bits = hal.int16(0)
        total = 0
        for k in range(1, w):
            if row[k] < least:
                least = row[k]
            bits ^= row[k]
            total += hal.int32(row[k]) * hal.int32(x[k])
        y[j] = total * 100 + hal.int32(least) + hal.int32(bits)


@hal.kernel
def hash_of_rows(y: hal.Ptr[hal.int32], x: ByteInputs, w: hal.int32, h: hal.int32):
    """Each iteration needs the one before."""
    j = hal.global_idx(0)
    if j < h:
        found = hal.uint32(7)
        for k in range(w):
            found = (found ^ hal.uint32(x[j * w + k])) * 16777619
        y[j] = hal.int32(found)


@hal.kernel
def means_of_rows(y: hal.Ptr[hal.int32], x: ByteInputs, w: hal.int32, h: hal.int32):
    """Sums of floats have an order."""
    j = hal.global_idx(0)
    if j < h:
        total = hal.float32(0)
        for k in range(w):
            total += hal.float32(x[j * w + k])
        y[j] = hal.int32(total)


@pytest.mark.parametrize(
    "kernel",
    [greatest_of_rows, numbers_of_rows, hash_of_rows, means_of_rows],
    ids=lambda kernel: kernel.name,
)
def test_rows_of_small_integers(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    dtype = "i2" if kernel is numbers_of_rows else "u1"
    for w in (0, 1, 2, 15, 31, 64, 100, 129, 300):
        x = np.random.default_rng(w).integers(-99 if dtype == "i2" else 0, 250, 7 * w + 1)
        y, expected = np.full((2, 9), 5, "i4")
        x, grid, block = x.astype(dtype), (2, 1, 1), (4, 1, 1)
        llvm.call(function, lowered, {"y": y, "x": x, "w": w, "h": 7}, grid, block)
        interpret(kernel, expected, x, vals=(w, 7), grid=grid, block=block)
        np.testing.assert_array_equal(y, expected, str(w))

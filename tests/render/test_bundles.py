"""Neighbours that load one element, as `x[i // 8]`, do what the interpreter does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toolchains import LLVM

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Bytes = hal.Ptr[hal.uint8]
ByteInputs = hal.ConstPtr[hal.uint8]
Numbers = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]
WEIGHTS = (3, 1, 4, 1, 5)


@hal.kernel
def unpacked(y: Bytes, x: ByteInputs, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n:
        return
    if x[i >> 3] & (hal.uint8(128) >> hal.uint8(i & 7)) != 0:
        y[i] = 1
    else:
        y[i] = 0


@hal.kernel
def repeated(y: Bytes, x: ByteInputs, n: hal.int32):
    """In 64 bits, with a start as well as an end, and a test on data."""
    i = hal.global_idx(0)
    k = hal.int64(i)
    if 5 <= i < n - 3 and x[k // hal.int64(3)] > 100:
        y[k] = x[k // hal.int64(3)] + hal.uint8(k % hal.int64(3))


@hal.kernel
def weighted(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] += x[i] * WEIGHTS[i % 5] - x[hal.int32(hal.uint32(i) % hal.uint32(5))]


@hal.kernel
def by_pairs(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n - 1:
        if i % 2 == 0:
            y[i] = x[i] * x[i + 1] - i // 2
        else:
            y[i] = x[i - 1] + x[i] + i // 2


@hal.kernel
def down(y: Numbers, x: Inputs, n: hal.int32):
    """Threads that divide without a rest store, beside what others of the bundle load."""
    i = hal.global_idx(0)
    if i < n and i % 7 == 0 and x[i] != 3:
        total = x[i]
        for k in hal.unroll(1, 4):
            total += x[i + k]
        y[i // 7] = total


@hal.kernel(block=(192, 1, 1))
def of_the_block(y: Numbers, x: Inputs, n: hal.int32):
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    if i < n:
        lane = t % 6
        y[i] = x[t // 6] + lane if lane < 4 else x[i] - t // 6


@hal.kernel
def two_sizes(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < n and j < 2:
        y[j * n + i] = x[i // 4] + 10 * x[i // 3] + x[hal.truncdiv(i, 2)] + j


@hal.kernel
def turned(y: Bytes, x: ByteInputs, n: hal.int32):
    """Elements at indices with other low bits: of three sizes of bundles, and in 64 bits."""
    i = hal.global_idx(0)
    k = hal.int64(i)
    if 3 <= i < n - 7:
        low = x[hal.int32(k & ~3)]
        y[i] = x[i ^ 5] - x[i | 1] + 3 * low ^ x[hal.int32(hal.uint32(i) ^ 1)]


@hal.kernel
def exchanged(y: Bytes, x: ByteInputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n and x[i] > 60:
        y[i ^ 3] = x[i] + hal.uint8(i & 4)


@hal.kernel(block=(192, 1, 1))
def turned_in_its_block(y: Numbers, x: Inputs, n: hal.int32):
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[t ^ 1] - (i ^ 1)


@hal.kernel
def begun_sums(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for k in range(8):
            if k <= i % 8:
                total += x[i // 8 * 8 + k]
        y[i] = total


@hal.kernel
def turned_points(y: Numbers, x: Inputs, n: hal.int32):
    """A product of a matrix by points, whose threads leave out a term of their own."""
    i = hal.global_idx(0)
    if i < n:
        point = i // 3
        row = i - point * 3
        total = x[i]
        for k in range(2, -1, -1):
            for j in range(2):
                if k != row:
                    total += x[3 * row + k] * x[3 * point + k] - j
        y[i] = total


@hal.kernel
def products(y: Numbers, x: Inputs, n: hal.int32):
    """A product of two 3 x 3 matrices for each nine threads, by two sizes."""
    i = hal.global_idx(0)
    if i < n - n % 9:
        a, b = i // 9 * 9 + i % 9 // 3 * 3, i // 9 * 9 + i % 3
        total = 0
        for k in range(3):
            total += x[a + k] * x[b + 3 * k]
        y[i] = total


@hal.kernel
def smeared(y: Bytes, x: ByteInputs, n: hal.int32):
    i = hal.global_idx(0)
    if 2 < i < n:
        total = x[i // 4]
        for k in range(-3, 4):
            total += x[i + k] >> hal.uint8(i % 4)
        y[i] = total


@hal.kernel
def scaled(y: Numbers, x: Inputs, n: hal.int32):
    """Take a few bits times a number for each 32 threads: the row is not cut at those."""
    i = hal.global_idx(0)
    if i < n:
        y[i] = ((x[i >> 1] >> (4 * (i & 1))) & 15) * x[i // 32] - x[i >> 6]


@hal.kernel
def samples_of_12_bits(y: Bytes, x: ByteInputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n // 2:
        bit = 12 * i
        v = hal.int32(x[bit >> 3]) | hal.int32(x[(bit >> 3) + 1]) << 8
        y[i] = hal.uint8(((v >> (bit & 7)) & 4095) >> 3)


@hal.kernel
def samples_of_5_bits(y: Bytes, x: ByteInputs, n: hal.int32):
    """Not all samples reach into the next byte; the first three threads do nothing."""
    i = hal.global_idx(0)
    if 3 <= i < n:
        k = hal.int64(i) * hal.int64(5)
        s = hal.int32(k % hal.int64(8))
        v = hal.int32(x[k // hal.int64(8)]) >> s
        if s > 3:
            v |= hal.int32(x[k // hal.int64(8) + hal.int64(1)]) << (8 - s)
        y[i] = hal.uint8(v & 31)


@hal.kernel
def stretched(y: Numbers, x: Inputs, n: hal.int32):
    """Three elements of two, by a number that is not negative in uint32."""
    i = hal.global_idx(0)
    if i < n:
        k = hal.uint32(i) * hal.uint32(2) + hal.uint32(1)
        f = hal.int32(k % hal.uint32(3))
        j = hal.int32(k // hal.uint32(3))
        y[i] = x[j] * (3 - f) + x[j + 1] * f


@hal.kernel(block=(192, 1, 1))
def threads_times_seven(y: Numbers, x: Inputs, n: hal.int32):
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[(7 * t + 8) // 9] + hal.truncmod(t * 7 + 2, 9) * hal.truncdiv(7 * t, 9)


@hal.kernel
def with_an_atomic(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        hal.atomic_add(y, i // 2, x[i // 2])


@hal.kernel
def with_two_stores(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[i // 2]
        y[n + i] = x[i // 2]


KERNELS = [
    scaled, samples_of_12_bits, samples_of_5_bits, stretched, threads_times_seven,
    unpacked, repeated, weighted, by_pairs, down, of_the_block, two_sizes, turned, exchanged,
    turned_in_its_block, begun_sums, turned_points, products, smeared, with_an_atomic,
    with_two_stores,
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_neighbours_load_one_element(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    narrow = "uint8" in str(lowered.signature.params[0].dtype)
    for n in (-4, 0, 1, 8, 63, 64, 65, 71, 200, 1003):
        random = np.random.default_rng(n + 9)
        x = random.integers(0, 255, max(200, n) + 7).astype("u1" if narrow else "i4")
        for block in [192] if lowered.block else [64, 5, 250]:
            height = 2 if kernel is two_sizes else 1
            grid, shape = (max(1, -(-n // block)), height, 1), (block, 1, 1)
            y, expected = np.full((2, 2 * max(0, n) + 300), 5, x.dtype)
            llvm.call(function, lowered, {"y": y, "x": x, "n": n}, grid, shape)
            interpret(kernel, expected, x, vals=(n,), grid=grid, block=shape)
            np.testing.assert_array_equal(y, expected, f"{n} in blocks of {block}")


@pytest.mark.parametrize("first", [2**31 - 640, 2**31 - 643, 2**30])
def test_the_last_threads_of_the_largest_launch(llvm: LLVM, first: int) -> None:
    @hal.kernel
    def far(y: Numbers, x: Inputs, first: hal.int32):
        i = hal.global_idx(0)
        if i >= first:
            y[i - first] = x[(i - first) // 5] + i // 5 - 10 * (i % 5)

    lowered = far.lower()
    blocks = 2**31 // 64 - 1
    part = first // 64, min(first // 64 + 9, blocks)
    count = 64 * part[1] - first
    x, y = np.arange(200, dtype="i4") ** 3, np.full(count + 9, 5, "i4")
    arguments = {"y": y, "x": x, "first": first}
    llvm.run(lowered, arguments, (blocks, 1, 1), (64, 1, 1), part)
    i = np.arange(first, first + count)
    expected = x[(i - first) // 5] + i // 5 - 10 * (i % 5)
    np.testing.assert_array_equal(y, [*expected, *[5] * 9])


@pytest.mark.parametrize("first", [2**31 - 640, 429496729 - 700, 429496729 - 300, 429496729])
def test_multiples_of_an_index_that_wrap(llvm: LLVM, first: int) -> None:
    """From thread 429496729 on, 5 * i + 3 is beyond int32."""

    @hal.kernel
    def far(y: Numbers, x: Inputs, first: hal.int32):
        i = hal.global_idx(0)
        if i >= first:
            y[i - first] = x[i - first] + (5 * i + 3) // 3 - 10 * (5 * i % 3)

    lowered = far.lower()
    part = first // 64, min(first // 64 + 9, 2**31 // 64 - 1)
    count = 64 * part[1] - first
    x, y = np.arange(700, dtype="i4") ** 3, np.full(count + 9, 5, "i4")
    arguments = {"y": y, "x": x, "first": first}
    llvm.run(lowered, arguments, (2**31 // 64 - 1, 1, 1), (64, 1, 1), part)
    i = np.arange(first, first + count)
    wide = (5 * i).astype("i4")
    expected = x[:count] + (5 * i + 3).astype("i4") // 3 - 10 * (wide % 3)
    np.testing.assert_array_equal(y, [*expected, *[5] * 9])


@hal.kernel
def wide(y: hal.Ptr[hal.float64], x: hal.ConstPtr[hal.float64], n: hal.int32):
    i = hal.global_idx(0)
    y[i] = x[i // 6]

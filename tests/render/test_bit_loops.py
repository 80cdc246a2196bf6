"""Loops over the bits of a number do what the interpreter does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toolchains import LLVM

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Numbers = hal.Ptr[hal.uint32]
Inputs = hal.ConstPtr[hal.uint32]


@hal.kernel
def turned(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        v = x[i]
        r = hal.uint32(0)
        for _ in range(32):
            r = (r << 1) | (v & 1)
            v >>= 1
        y[i] = r


@hal.kernel
def turned_by_tests(y: Numbers, x: Inputs, n: hal.int32):
    """Count down, and load in the loop."""
    i = hal.global_idx(0)
    if i >= n:
        return
    r = hal.uint32(0)
    for b in range(31, -1, -1):
        if x[i] >> hal.uint32(b) & 1 == 1:
            r |= hal.uint32(1) << hal.uint32(31 - b)
        elif b == 7:
            r ^= 5
    y[i] = r


@hal.kernel
def interleaved(y: Numbers, x: Inputs, n: hal.int32):
    """Loops in a loop, and behind a test of data; by `while`, too."""
    i = hal.global_idx(0)
    if i < n and x[i] % 3 != 0:
        a, b, r = x[i] & 0xFFFF, x[i] >> 16, hal.uint32(0)
        for turn in range(3):
            r += hal.uint32(turn)
            for k in range(20):
                r |= (a >> hal.uint32(k) & 1) << hal.uint32(2 * k % 32)
            k = 0
            while k < 18:
                r ^= (b >> hal.uint32(k) & 1) << hal.uint32((2 * k + 1) % 32)
                k += 1
        y[i] = r


@hal.kernel
def wide(y: Numbers, x: Inputs, n: hal.int32):
    """Products that wrap in 64 bits with a sign, and shifts that leave nothing but the sign."""
    i = hal.global_idx(0)
    if i < n:
        s = hal.int64(hal.bitcast(hal.int32, x[i]))
        for k in range(40, 104, 2):
            s = s * 6364136223846793005 + hal.int64(k) - (s >> hal.int64(k - 8))
        y[i] = hal.uint32(s & 0xFFFFFFFF)


@hal.kernel(block=(64, 1, 1))
def between_barriers(y: Numbers, x: Inputs, n: hal.int32):
    shared = hal.shared(hal.uint32, 64)
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    v = x[i] if i < n else 0
    for _ in range(20):
        v ^= v << 13
        v ^= v >> 17
    shared[t] = v
    hal.barrier()
    other = t ^ 1
    for _ in range(17):
        v += shared[other] * 3
    if i < n:
        y[i] = v


@hal.kernel
def too_many(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        r = x[i]
        for _ in range(65):
            r = r * 3 + 1
        y[i] = r


@hal.kernel
def too_much(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        r = x[i]
        for _ in range(32):
            r = (r * 3 ^ 1) % 17 + (r >> 3) * (r << 5) ^ (r & 77) - (r | 9)
        y[i] = r


@hal.kernel
def with_loads(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        r = x[i]
        for k in range(20):
            r += x[k]
        y[i] = r


@hal.kernel
def with_floats(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        r = hal.float32(x[i])
        for _ in range(20):
            r = r * 0.5 + 1.0
        y[i] = hal.uint32(r)


@hal.kernel
def with_a_break(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        r = x[i]
        for _ in range(20):
            if r & 1 == 1:
                break
            r >>= 1
        y[i] = r


KERNELS = [
    turned, turned_by_tests, interleaved, wide, between_barriers, too_many, too_much, with_loads,
    with_floats, with_a_break,
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_loops_over_bits_give_what_the_interpreter_gives(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    for n in (-3, 0, 1, 7, 64, 77, 1000):
        x = np.random.default_rng(n + 3).integers(0, 2**32, max(64, n), "u4")
        x[:5] = 0, 1, 2**31, 2**32 - 1, 2**31 - 1
        y, expected = np.full((2, len(x) + 70), 5, "u4")
        for block in [64] if kernel is between_barriers else [64, 5]:
            grid, shape = (max(1, -(-n // block)), 1, 1), (block, 1, 1)
            llvm.call(function, lowered, {"y": y, "x": x, "n": n}, grid, shape)
            interpret(kernel, expected, x, vals=(n,), grid=grid, block=shape)
            np.testing.assert_array_equal(y, expected, f"{n} in blocks of {block}")

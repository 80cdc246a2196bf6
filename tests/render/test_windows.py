"""Loops over a window that moves with the thread do what the interpreter does."""

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
KERNELS: list[Any] = []
MOST = 2**31 - 1


def kernel(function):
    KERNELS.append(hal.kernel(function))
    return KERNELS[-1]


@kernel
def four_each(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for j in range(4 * (i + b), 4 * (i + b + 1)):
            total += x[j & 63] * (j % 7)
        y[i] = total


@kernel
def around(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for j in range(i + b - r, i + b + r + 1):
            total += x[j & 63] * (j % 7)
        y[i] = total


@kernel
def around_by_while(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    total = 0
    j = i + b - r
    while j <= i + b + r - 1:
        total += x[j & 63] * (j % 7)
        j += 1
    if i < n:
        y[i] = total + 1000 * (j & 15)


@kernel
def downwards(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        for j in range(i + b + r, i + b - r - 1, -1):
            y[i] = 3 * y[i] + x[j & 63]
        for j in range(i + b, i + b - 5, -2):
            y[i] = 3 * y[i] + x[j & 63]


@kernel
def cut_at_the_ends(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for j in range(max(i + b - r, 0), min(n, i + b + r + 1)):
            total += x[j] * (j % 7)
        y[i] = total
        for j in range(max(i - 1, b), min(i + 2, n)):
            y[i] = 3 * y[i] + x[j & 63]


@kernel
def cut_at_one_end(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        for j in range(max(i - 2, 0), i + 3):
            y[i] = 3 * y[i] + x[j & 63]
        for j in range(i + b, min(i + b + 16, n)):
            y[i] = 3 * y[i] + x[j & 63]
        for j in range(max(0, i - 4), i + 1):
            y[i] = 3 * y[i] + x[j]


@kernel
def by_steps(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for j in range(i + b, i + b + 8, 3):
            total += x[j & 63] * (j % 7)
        k = i + b
        while k < i + b + 2 * r:
            total += x[k & 63] * (k % 7)
            k += 2
        y[i] = total + 1000 * (k & 15)


@kernel
def rows_of_each(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0) + b
    if hal.global_idx(0) < n:
        total = 0
        for j in range(i * r, (i + 1) * r):
            total += x[j & 63]
            if total > 90:
                continue
            total += 7
        y[hal.global_idx(0)] = total


@kernel
def wide(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.int64(hal.global_idx(0))
    s = hal.int64(r)
    far = (hal.int64(b) << 32) + 4294967290
    if i < hal.int64(n):
        for j in range(i - s, i + s + 1):
            y[i] = 3 * y[i] + x[j & 63]
        for j in range(far + i, far + i + s):
            y[hal.global_idx(0)] = 3 * y[hal.global_idx(0)] + x[j & 63]
        for j in range(far + i, far + i + 4):
            y[hal.global_idx(0)] = 3 * y[hal.global_idx(0)] + x[j & 63]


@kernel
def square(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for p in range(i + b - r, i + b + r + 1):
            for q in range(max(i - r, 0), min(i + r + 1, n)):
                total += x[(p + q) & 63] * (p & 7)
            for q in range(i * r, i * r + r):
                total += x[q & 63]
        y[i] = total


@kernel
def rows_around(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        for p in range(3):
            total = p
            for j in range(i + b - r, i + b + r + p - 1):
                total += x[j & 63]
            for j in range(i - p, i + p + 1):
                total += 5 * x[j & 63]
            y[i] = 3 * y[i] + total


@kernel
def leaving(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        for j in range(i + b - r, i + b + r + 1):
            if x[j & 63] > 60:
                break
            y[i] += x[j & 63]
        for j in range(i + b, i + b + 9):
            if x[j & 63] > 30:
                continue
            if x[j & 63] < -90:
                return
            y[i] += x[j & 63]


@kernel
def of_a_flat_index(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    k = hal.global_idx(0)
    if k < n:
        i = k % r
        j = k // r
        most = x[2 * i & 63]
        for p in range(2 * j + b, 2 * j + b + 2):
            for q in range(2 * i, 2 * i + 2):
                most = max(most, x[(p * 5 + q) & 63] * (q % 7))
            for q in range(8 * (i % 5), 8 * (i % 5) + 3):
                most = max(most, x[(p + q) & 63])
        for q in range(i - 1, i + 2):
            most += x[q & 63] * (q % 7)
        for q in range(k % (r * 3) // r * 4, k % (r * 3) // r * 4 + 4):
            most += x[q & 63] * (q % 7)
        y[k] = most


@kernel
def floats(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = 0.0
        for j in range(4 * i + b, 4 * i + b + 4):
            total = total * 0.5 + hal.float32(x[j & 63])
        for j in range(i * (hal.block_idx(0) + b), i * (hal.block_idx(0) + b) + 3):
            total = max(total, hal.float32(x[j & 63]))
            if total > 40.0:
                break
        y[i] = hal.int32(total)


@kernel
def along_both(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    t = hal.thread_idx(0)
    if i < n:
        total = 0
        for p in range(3 * hal.global_idx(1) + r, 3 * hal.global_idx(1) + r + 3):
            for q in range(3 * t + b, 3 * t + b + 3):
                total += x[(7 * p + q) & 63] * (q % 7)
            for q in range(t * i + b, t * i + b + 3):  # each thread decides
                total += x[(7 * p + q) & 63] * (q % 7)
        y[i] = total


@kernel
def in_a_loop(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        for p in range(r & 7):
            most = x[(2 * i + p) & 63]
            for j in range(2 * p + b, 2 * p + b + 2):
                for q in range(2 * i - p, 2 * i - p + 3):
                    most = max(most, x[(j * 5 + q) & 63] * (q % 7))
            y[i] = 3 * y[i] + most
        for p in range(9, 9 - (r & 7), -2):
            for q in range(4 * i + 3 * p + b, 4 * i + 3 * p + b + 2):
                y[i] += x[q & 63] * (q % 7)
            for q in range(i * p + b // 4 * p, i * p + b // 4 * p + 2):
                y[i] += x[q & 63] * (q % 7)


@kernel
def in_a_loop_in_step(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        for p in range(r & 7):
            total = x[i]
            for j in range(2 * p + b, 2 * p + b + 2):
                total += 5 * (j % 9)
            for q in range(2 * i + b + p - 1, 2 * i + b + p + 2):
                total += q % 7 * p
            y[i] = 3 * y[i] + total


@kernel
def many_at_once(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        for j in range(i, i + 4):
            hal.atomic_add(y, (j + r) & 63, x[j & 63])
        for j in range(i - r, i + r):
            hal.atomic_add(y, j & 63, 1)


@kernel
def inside(y: Numbers, x: Inputs, n: hal.int32, r: hal.int32, b: hal.int32):
    i = hal.global_idx(0)
    if r <= i < n - r:
        total = b
        for j in range(i - r, i + r + 1):
            total += x[j]
        y[i] = total


VALUES = [
    (0, 0),
    (2, 0),
    (-3, 0),
    (7, 5),
    (3, -20),
    (2, MOST - 40),
    (2, MOST - 70),
    (5, -(2**31)),
    (3, 2**29 - 20),
    (-(2**31), 3),
    (-(2**31), MOST - 30),
    (1, 2**30 - 9),
]
FLAT = [(24, 3), (-7, 0), (MOST - 1, 2**30), (2**30 + 1, 5)]  # of a flat index  # fmt: skip


def compared(function: Any, lowered: Any, run: Any) -> None:
    for r, b in (*VALUES, *FLAT) if function is of_a_flat_index else VALUES:
        if function in (around_by_while, by_steps) and max(abs(b), abs(r)) > 2**30:
            continue  # a counter with the greatest number as its limit counts on
        if function in (rows_of_each, square) and r == -(2**31):
            continue  # 2**31 iterations
        for n in (-3, 33, 64) if r == 2 else (64,):
            x = np.random.default_rng(n + 9).integers(-99, 99, 64).astype("i4")
            y, expected = np.full((2, 64), 5, "i4")
            run({"y": y, "x": x, "n": n, "r": r, "b": b}, (4, 1, 1), (16, 1, 1))
            interpret(function, expected, x, vals=(n, r, b), grid=4, block=16)
            np.testing.assert_array_equal(y, expected, f"n {n}, r {r}, b {b}")


@pytest.mark.parametrize("function", KERNELS, ids=lambda function: function.name)
def test_a_window_gives_what_the_interpreter_gives(llvm: LLVM, function: Any) -> None:
    lowered = function.lower()
    compiled = llvm.function(lowered)
    compared(function, lowered, lambda *launch: llvm.call(compiled, lowered, *launch))


@hal.kernel
def pooled(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(0)
    i = k % w
    j = k // w
    if k < w * h:
        most = x[2 * j * 2 * w + 2 * i]
        for p in range(2 * j, 2 * j + 2):
            for q in range(2 * i, (i + 1) * 2):
                most = max(most, x[p * 2 * w + q])
        y[k] = most


@pytest.mark.parametrize("w", [3, 20, 50])
def test_squares_of_a_flat_index_give_their_greatest_elements(llvm: LLVM, w: int) -> None:
    h = 7
    x = np.random.default_rng(w).integers(-99, 99, (2 * h, 2 * w)).astype("i4")
    y = np.zeros((h, w), "i4")
    lowered = pooled.lower()
    given = {"y": y.reshape(-1), "x": x.reshape(-1), "w": w, "h": h}
    llvm.call(llvm.function(lowered), lowered, given, (-(-w * h // 64), 1, 1), (64, 1, 1))
    np.testing.assert_array_equal(y, x.reshape(h, 2, w, 2).max((1, 3)))

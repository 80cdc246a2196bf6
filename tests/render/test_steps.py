"""Guards that hold for every c-th thread of a row only do what the interpreter does."""

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
THREADS = 64


@hal.kernel(block=(THREADS, 1, 1))
def doubled_step(y: Ints, x: Inputs, c: hal.int32, n: hal.int32):
    buf = hal.shared(hal.int32, 64)
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    buf[t] = x[i] if i < n else 0
    hal.barrier()
    s = 1
    while s < hal.block_dim(0):
        if t % (2 * s) == 0:
            buf[t] += buf[t + s]
        hal.barrier()
        s *= 2
    if i < n:
        y[i] = buf[t]


@hal.kernel(block=(THREADS, 1, 1))
def doubled_mask(y: Ints, x: Inputs, c: hal.int32, n: hal.int32):
    buf = hal.shared(hal.int32, 64)
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    buf[t] = x[i] if i < n else 0
    hal.barrier()
    s = 1
    while s < 64:
        if 2 * s - 1 & t == 0 and t + s < 64:
            buf[t] += buf[t + s]
        hal.barrier()
        s <<= 1
    if i < n:
        y[i] = buf[t]


@hal.kernel(block=(THREADS, 1, 1))
def last_of_each(y: Ints, x: Inputs, c: hal.int32, n: hal.int32):
    buf = hal.shared(hal.int32, 64)
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    buf[t] = x[i] if i < n else 0
    hal.barrier()
    s = 1
    while s < 64:
        if (t + 1) % (2 * s) == 0:
            buf[t] += buf[t - s]
        hal.barrier()
        s *= 2
    if i < n:
        y[i] = buf[t]


@hal.kernel
def every(y: Ints, x: Inputs, c: hal.int32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n and i % c == 0:
        y[i] = x[i] + i % c


@hal.kernel
def others_return(y: Ints, x: Inputs, c: hal.int32, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n or hal.truncmod(i - 3, c) != 0:
        return
    y[i] = x[i] + i // c


@hal.kernel
def by_a_mask(y: Ints, x: Inputs, c: hal.int32, n: hal.int32):
    i = hal.global_idx(0)
    if i + 1 & c == 0 and x[i % n] > 0 and i < n:
        y[i] = x[i]


@hal.kernel
def of_a_block(y: Ints, x: Inputs, c: hal.int32, n: hal.int32):
    i = hal.global_idx(0)
    if 2 < i < n - 1 and hal.thread_idx(0) % (c + 1) == 0:
        for k in range(3):
            y[i] += x[i + k - 2]


@hal.kernel
def by_a_constant(y: Ints, x: Inputs, c: hal.int32, n: hal.int32):
    i = hal.global_idx(0)
    if (i - 5) % 17 == 0 and i < n:
        y[i] = x[i]


@hal.kernel
def by_a_small_constant(y: Ints, x: Inputs, c: hal.int32, n: hal.int32):
    i = hal.global_idx(0)
    if i % 3 == 0 and i < n:
        y[i] = x[i]


@hal.kernel
def another_remainder(y: Ints, x: Inputs, c: hal.int32, n: hal.int32):
    i = hal.global_idx(0)
    if i % c == 1 and i < n:
        y[i] = x[i]


@hal.kernel
def beside_another_effect(y: Ints, x: Inputs, c: hal.int32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = 1
        if i % c == 0:
            y[i] = x[i]


BLOCKS = [doubled_step, doubled_mask, last_of_each]
KERNELS = [
    *BLOCKS, every, others_return, by_a_mask, of_a_block, by_a_constant, by_a_small_constant,
    another_remainder, beside_another_effect,
]  # fmt: skip
NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 24, 63, 64, 1000, 2**31 - 1]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_guards_that_hold_for_every_so_many_threads(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    numbers = [*NUMBERS, *(-c for c in NUMBERS), -(2**31)] if kernel not in BLOCKS else [0]
    for c in numbers:
        for n in (1, 64, 200):
            x = np.random.default_rng(n).integers(-99, 99, n).astype("i4")
            for block in [THREADS] if kernel in BLOCKS else [64, 5]:
                grid = -(-n // block)
                y, expected = np.full((2, n), 5, "i4")
                arguments = {"y": y, "x": x, "c": c, "n": n}
                llvm.call(function, lowered, arguments, (grid, 1, 1), (block, 1, 1))
                interpret(kernel, expected, x, vals=(c, n), grid=grid, block=block)
                np.testing.assert_array_equal(y, expected, f"{c} of {n} in {block}")

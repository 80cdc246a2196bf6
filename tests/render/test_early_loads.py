"""Loads of elements that an IF stores on both sides do what the interpreter does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toolchains import LLVM

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Floats = hal.Ptr[hal.float32]
Inputs = hal.ConstPtr[hal.float32]


@hal.kernel
def one_side(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 0.0:
            y[i] = x[i] + y[i]
        else:
            y[i] = 0.0


@hal.kernel
def other_side(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] < 0.0:
            y[n - 1 - i] = 1.0
        else:
            a = 3.0 * y[n - 1 - i]
            y[n - 1 - i] = a - x[i]


@hal.kernel
def chain(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 1.0:
            y[i] = x[i]
        elif x[i] > 0.0:
            y[i] = 2.0
        else:
            y[i] *= x[i]


@hal.kernel
def stores_again(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 1.0:
            y[i] = x[i]
            y[i + n] = y[i] + 1.0
        else:
            y[i] += x[i]
            y[i] += y[i + n]


@hal.kernel
def not_stored(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 0.0:
            y[i] = x[i] + y[i]
        else:
            y[i + n] = 0.0


@hal.kernel
def stored_in_a_loop(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 0.0:
            y[i] = x[i] + y[i]
        else:
            for k in range(n - 9):
                y[i] = 1.0 * hal.float32(k)


@hal.kernel
def returns(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 0.0:
            y[i] = x[i] + y[i]
        else:
            if x[i] < -2.0:
                return
            y[i] = 1.0


@hal.kernel
def loads_behind_a_store(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 0.0:
            y[2 * n - 1 - i] = 7.0
            y[i] = x[i] + y[i]
        else:
            y[i] = 1.0


@hal.kernel
def index_of_memory(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 0.0:
            k = i + hal.int32(x[n - 1 - i] * 0.0)
            y[k] = x[i] + y[k]
        else:
            k = i + hal.int32(x[n - 1 - i] * 0.0)
            y[k] = 1.0


@hal.kernel
def behind_an_atomic(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 0.0:
            hal.atomic_add(y, n + i, 1.0)
            y[i] = x[i] + y[i]
        else:
            y[i] = 1.0


@hal.kernel
def other_zero(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        size = max(x[i], -x[i])
        if x[i] > 0.0:
            odd = 2 * i + hal.int32(hal.copysign(0.5, size * 0.0) + 0.5)
            y[odd] = x[i] + y[odd]
        else:
            even = 2 * i + hal.int32(hal.copysign(0.5, size * -0.0) + 0.5)
            y[even] = 1.0


KERNELS = [
    one_side, other_side, chain, stores_again, not_stored, stored_in_a_loop, returns,
    loads_behind_a_store, index_of_memory, behind_an_atomic, other_zero,
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_each_thread_loads_what_it_stored(llvm: LLVM, kernel: Any) -> None:
    n = 40
    x = np.random.default_rng(1).normal(0, 2, n).astype("f4")
    y = np.arange(2 * n, dtype="f4")
    expected = y.copy()
    interpret(kernel, expected, x, vals=(n,), grid=1, block=64)
    llvm.run(kernel.lower(), {"y": y, "x": x, "n": n}, (1, 1, 1), (64, 1, 1))
    np.testing.assert_array_equal(y, expected)

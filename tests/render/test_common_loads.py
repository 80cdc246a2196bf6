"""Elements that all threads load do what the interpreter does."""

from __future__ import annotations

import numpy as np
import pytest
from toolchains import Toolchain

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"

Numbers = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]


@hal.kernel
def guarded(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < sizes[0]:
        y[i] = sizes[1] * x[i]


@hal.kernel
def strided(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    count = sizes[0]
    factor = x[sizes[2]]
    i = hal.global_idx(0)
    while i < count:
        y[i] += factor * x[i]
        i += hal.grid_dim(0) * hal.block_dim(0)


@hal.kernel
def summed(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    terms = sizes[3]
    if i < n:
        total = y[i]
        for k in range(terms):
            total += x[k] * x[i]
        y[i] = total


@hal.kernel(block=(16, 1, 1))
def staged(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    count = sizes[0]
    t = hal.thread_idx(0)
    tile = hal.shared(hal.int32, 16)
    i = hal.global_idx(0)
    tile[t] = x[i] if i < count else 0
    hal.barrier()
    if i < count:
        y[i] = tile[15 - t] + count


@hal.kernel
def by_parameter(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    end = sizes[n - 59]
    first = sizes[n]
    for k in range(i, first, 7):
        if k < end:
            y[k] = x[k] + hal.global_idx(1)


COMMON_LOADS = [guarded, strided, summed, staged, by_parameter]


@pytest.mark.parametrize("kernel", COMMON_LOADS, ids=lambda kernel: kernel.name)
def test_what_all_threads_load_first(toolchain: Toolchain, kernel: hal.Kernel) -> None:
    lowered = kernel.lower()
    x = np.random.default_rng(4).integers(-9, 9, 80).astype("i4")
    for count in (0, 1, 37, 60):
        sizes = np.zeros(61, "i4")
        sizes[[0, 1, 2, 3, 60]] = count, 3, 2, 5, count
        y, expected = np.full((2, 80), 5, "i4")
        toolchain.run(lowered, {"y": y, "x": x, "sizes": sizes, "n": 60}, (4, 1, 1), (16, 1, 1))
        interpret(kernel, expected, x, sizes, vals=(60,), grid=4, block=16)
        np.testing.assert_array_equal(y, expected, str(count))


@hal.kernel
def clipped(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < n:
        v = x[i]
        if v < sizes[2 * j]:
            v = sizes[2 * j]
        elif v > sizes[2 * j + 1]:
            v = sizes[2 * j + 1]
        y[j * n + i] = v


@hal.kernel
def between_limits(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    p = hal.global_idx(0)
    j = p // 16
    if p < n:
        inside = -sizes[j] <= x[p] <= sizes[j] and x[p] != sizes[j + 1]
        y[p + n * hal.global_idx(1)] = hal.int32(not inside)


@hal.kernel
def written_between(y: Numbers, x: Inputs, sizes: Inputs, n: hal.int32):
    """The thread writes what it has loaded, or may do so in an earlier iteration or a branch."""
    i = hal.global_idx(0)
    if i < 1:
        k = 4 * hal.global_idx(1)
        m = y[k] + y[k + 2]
        if n > 0:
            y[k] = m + 3
            if x[1] != 99:
                y[k + 1] = y[k]
        for c in range(n // 20):
            if y[k + 2] < 9:
                m += y[k + 2]
                y[k + 2] += 1
            if y[k + 2] == 8:
                m += 100 * y[k + 2] + c
        if n > 40:
            if x[2] != 99:
                y[k] = 8
            else:
                m += y[k]
            if x[3] != 99:
                m += y[k]
        y[k + 3] = m


REPEATED = [clipped, between_limits, written_between]


@pytest.mark.parametrize("kernel", REPEATED, ids=lambda kernel: kernel.name)
def test_what_is_loaded_ahead_of_an_if_and_in_it(toolchain: Toolchain, kernel: hal.Kernel) -> None:
    lowered = kernel.lower()
    x = np.random.default_rng(4).integers(-9, 9, 80).astype("i4")
    for n in (0, 40, 60):
        sizes = np.sort(np.random.default_rng(n).integers(-5, 9, (40, 2)), 1).astype("i4").ravel()
        y, expected = np.full((2, 256), 5, "i4")
        arguments = {"y": y, "x": x, "sizes": sizes, "n": n}
        toolchain.run(lowered, arguments, (4, 3, 1), (16, 1, 1))
        interpret(kernel, expected, x, sizes, vals=(n,), grid=(4, 3), block=16)
        np.testing.assert_array_equal(y, expected, str(n))

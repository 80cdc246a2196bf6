"""Spellings of ordinary kernels do what their plain forms do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toolchains import LLVM, Toolchain

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Floats = hal.Ptr[hal.float32]
Inputs = hal.ConstPtr[hal.float32]


@hal.kernel
def counted_down(y: Floats, x: Inputs, n: hal.int32):
    k = 3
    while k >= 0:
        i = 4 * hal.global_idx(0) + k
        if i < n:
            y[i] = 2.0 * x[i]
        k -= 1


@hal.kernel
def wide_index(y: Floats, x: Inputs, n: hal.int32):
    block = hal.int64(hal.block_idx(0)) * hal.int64(hal.block_dim(0))
    i = block + hal.int64(hal.thread_idx(0))
    if i < hal.int64(n):
        y[i] = 2.0 * x[i]


@hal.kernel
def rows_by_strides(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    while j < 3:
        if i < n // 3:
            y[j * (n // 3) + i] = 2.0 * x[j * (n // 3) + i]
        j += hal.grid_dim(1) * hal.block_dim(1)


@hal.kernel
def sixteen_beside_each_other(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    for k in range(16):
        j = 16 * i + k
        if j < n:
            y[j] = hal.sqrt(x[j] * x[j])


@hal.kernel
def sixteen_apart(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    for k in range(16):
        j = i + k * hal.grid_dim(0) * hal.block_dim(0)
        if j < n:
            y[j] = 2.0 * x[j] + y[j]


@hal.kernel
def either_store(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 0.0:
            y[i] = 2.0 * x[i] + y[i]
        else:
            y[i] = x[i] - y[i]


@hal.kernel(block=(64, 1, 1))
def with_edges(y: Floats, x: Inputs, n: hal.int32):
    tile = hal.shared(hal.float32, 66)
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    tile[t + 1] = x[i] if i < n else hal.float32(0)
    if t == 0:
        tile[0] = x[i - 1] if i > 0 and i < n else hal.float32(0)
    if t == 63:
        tile[65] = x[i + 1] if i + 1 < n else hal.float32(0)
    hal.barrier()
    if i < n:
        y[i] = tile[t] + tile[t + 2] - 2.0 * tile[t + 1]


@hal.kernel
def every_second(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n // 4:
        total = hal.float32(0)
        for k in range(n // 4):
            total += x[2 * i + k]
        y[i] = total


@hal.kernel(block=(64, 1, 1))
def weights_in_shared_memory(y: Floats, x: Inputs, n: hal.int32):
    weights = hal.shared(hal.float32, 64)
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    weights[t] = x[t] if t < n else hal.float32(0)
    hal.barrier()
    if i < n - 64:
        total = hal.float32(0)
        for k in range(min(n, 64)):
            total += weights[k] * x[i + k]
        y[i] = total


@hal.kernel
def rows_left_out(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n // 8:
        return
    total = hal.float32(0)
    for j in range(8):
        if j + hal.global_idx(1) < 2:
            continue
        for k in range(-2, n // 16):
            if i + k < 0 or i + k >= n // 8:
                continue
            total += x[j * (n // 8) + i + k]
    y[i] = total


KERNELS = [
    counted_down, wide_index, rows_by_strides, either_store, with_edges,
    sixteen_beside_each_other, sixteen_apart, every_second,
    weights_in_shared_memory, rows_left_out,
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_spelling_gives_what_the_interpreter_gives(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    for n in (0, 1, 63, 64, 65, 200, 1000):
        x = np.random.default_rng(n).integers(-99, 99, max(1, n)).astype("f4")
        for block in [(64, 1, 1)] if lowered.block else [(64, 1, 1), (5, 1, 1), (33, 2, 1)]:
            grid = (max(1, -(-n // block[0])), 1 if block[1] == 1 else 2, 1)
            if kernel is not rows_by_strides:
                grid, block = (grid[0], 1, 1), (block[0], 1, 1)
            y, expected = np.full((2, x.size), 5, "f4")
            llvm.call(function, lowered, {"y": y, "x": x, "n": n}, grid, block)
            interpret(kernel, expected, x, vals=(n,), grid=grid, block=block)
            np.testing.assert_array_equal(y, expected, f"{n} in {block}")


@hal.kernel
def whole_numbers(y: hal.Ptr[hal.int32], x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = hal.int32(x[i])


def test_casts_of_floats_to_integers(llvm: LLVM) -> None:
    lowered = whole_numbers.lower()
    edges = np.array([2.0**31, -(2.0**31)], "f4")
    beside = [np.nextafter(edges, np.float32(end)) for end in (-np.inf, np.inf)]
    x = np.concatenate([edges, *beside, np.array([np.nan, np.inf, -np.inf, -0.9, 7.9], "f4")])
    y, expected = np.full((2, x.size), 5, "i4")
    llvm.run(lowered, {"y": y, "x": x, "n": x.size}, (1, 1, 1), (16, 1, 1))
    interpret(whole_numbers, expected, x, vals=(x.size,), grid=1, block=16)
    np.testing.assert_array_equal(y, expected)


@hal.kernel
def elements_in_loops(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        v = hal.local(hal.float32, 3)
        for d in range(3):
            v[d] = x[(i + d) % n]
        total = hal.float32(0)
        for d in range(2, -1, -1):
            if x[i] > 0.0:
                total += hal.float32(d + 1) * v[d]
        y[i] = total


@hal.kernel
def elements_in_nested_loops(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    m = hal.local(hal.float32, (3, 3))
    for row in range(3):
        for column in range(3):
            m[row, column] = x[min(i + row * column, n - 1)]
    if i < n:
        for step in range(n // 100 + 2):
            for row in range(3):
                m[row, 0] += m[2 - row, 1] + hal.float32(step)
        y[i] = m[0, 0] + m[1, 0] + m[2, 0]


@hal.kernel
def elements_of_a_window(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    window = hal.local(hal.float32, 5)
    for k in range(5):
        window[k] = x[min(max(i + k - 2, 0), n - 1)]
    for last in range(4, 0, -1):
        for k in range(4):
            if k < last and window[k] > window[k + 1]:
                larger = window[k]
                window[k] = window[k + 1]
                window[k + 1] = larger
    if i < n:
        y[i] = window[2]


@hal.kernel
def elements_in_triangles(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    v = hal.local(hal.float32, 7)
    for k in range(7):
        v[k] = x[min(max(i + k - 3, 0), n - 1)]
    for k in range(4):
        for j in range(k + 1, 7):
            low = min(v[k], v[j])
            v[j] = max(v[k], v[j])
            v[k] = low
        for j in range(6, 6 - k, -2):
            v[j] += 0.5
    if i < n:
        y[i] = v[3] - v[6]


@hal.kernel
def elements_after_a_while(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        v = hal.local(hal.float32, 4)
        k = 0
        while k < 4:
            v[k] = x[i] * hal.float32(k)
            k += 1
        y[i] = v[0] + v[1] + v[2] + v[3]


ELEMENTS = [
    elements_in_loops, elements_in_nested_loops, elements_of_a_window, elements_in_triangles,
    elements_after_a_while,
]  # fmt: skip


@pytest.mark.parametrize("kernel", ELEMENTS, ids=lambda kernel: kernel.name)
def test_elements_that_short_loops_index(toolchain: Toolchain, kernel: Any) -> None:
    lowered = kernel.lower()
    for n in (1, 5, 64, 300):
        x = np.random.default_rng(n).integers(-9, 9, n).astype("f4")
        block, grid = (32, 1, 1), (-(-n // 32), 1, 1)
        y, expected = np.full((2, x.size), 5, "f4")
        toolchain.run(lowered, {"y": y, "x": x, "n": n}, grid, block)
        interpret(kernel, expected, x, vals=(n,), grid=grid, block=block)
        np.testing.assert_array_equal(y, expected, f"{n}")


@hal.kernel
def between(y: Floats, x: Inputs, n: hal.int32, r: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if r <= i < n - r:
            y[i] = 2.0 * x[i]
        else:
            y[i] = x[i] + 1.0


@hal.kernel
def on_either_side(y: Floats, x: Inputs, n: hal.int32, r: hal.int32):
    i = hal.global_idx(0)
    if i >= n:
        return
    if i < r or i >= n - r:
        y[i] = x[i] + 1.0
        return
    y[i] = 2.0 * x[i]


@hal.kernel
def one_side_after_the_other(y: Floats, x: Inputs, n: hal.int32, r: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if i < r:  # noqa: SIM114 - the spelling that is tested
            y[i] = x[i] + 1.0
        elif not i < n - r:
            y[i] = x[i] + 1.0
        else:
            y[i] = 2.0 * x[i]


@hal.kernel
def one_in_the_other(y: Floats, x: Inputs, n: hal.int32, r: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[i] + 1.0
        if i >= r:  # noqa: SIM102 - the spelling that is tested
            if n - r > i:
                y[i] = 2.0 * x[i]


INTERVALS = [between, on_either_side, one_side_after_the_other, one_in_the_other]


@pytest.mark.parametrize("kernel", INTERVALS, ids=lambda kernel: kernel.name)
def test_intervals_between_two_parameters(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    x = np.arange(128, dtype=np.float32)
    for n in (-1, 0, 1, 31, 97, 128):
        for r in (-(2**31), -3, 0, 1, 5, 48, 49, 100, 2**31 - 1):
            got, expected = np.ones(128, np.float32), np.ones(128, np.float32)
            interpret(kernel, expected, x, vals=(n, r), grid=(4, 1, 1), block=(32, 1, 1))
            values = {"x": x, "n": np.int32(n), "r": np.int32(r)}
            llvm.call(function, lowered, {"y": got, **values}, (4, 1, 1), (32, 1, 1))
            assert got.tolist() == expected.tolist(), (n, r)


@hal.kernel
def times_four(y: Floats, x: Inputs, n: hal.int32):
    i = 4 * hal.global_idx(0)
    if i < n:
        y[i] = x[i]
        y[i + 1] = 2.0 * x[i]


@hal.kernel
def shifted_until_it_wraps(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i << 28 < n:
        y[i] = x[i]


@hal.kernel
def two_shifts_that_wrap(y: Floats, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i << 26 < n and i << 29 < n:
        y[i] = x[i]


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [(times_four, (0, 1, 4, 97, 256)), (shifted_until_it_wraps, (-(2**31), 0, 1, 2**30 - 1)),
     (two_shifts_that_wrap, (-(2**31), -1, 0, 1, 2**30 - 1))],
    ids=["times_four", "shifted_until_it_wraps", "two_shifts_that_wrap"],
)  # fmt: skip
def test_a_guard_of_a_multiple_of_the_index(
    toolchain: Toolchain, kernel: Any, sizes: tuple[int, ...]
) -> None:
    """Threads for which a step wraps keep the test."""
    lowered = kernel.lower()
    x = np.arange(260, dtype=np.float32)
    for n in sizes:
        y, expected = np.full((2, x.size), 5, "f4")
        toolchain.run(lowered, {"y": y, "x": x, "n": n}, (4, 1, 1), (16, 1, 1))
        interpret(kernel, expected, x, vals=(n,), grid=4, block=16)
        np.testing.assert_array_equal(y, expected, f"{n}")

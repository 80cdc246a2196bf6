"""Threads that stride over rows and columns do what the interpreter does."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from toolchains import LLVM

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Numbers = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]


@hal.kernel
def rows_and_columns(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    across = hal.grid_dim(0) * hal.block_dim(0)
    j = hal.global_idx(1)
    while j < h:
        i = hal.global_idx(0)
        while i < w:
            y[j * w + i] = 3 * x[j * w + i]
            i += across
        j += hal.grid_dim(1) * hal.block_dim(1)


@hal.kernel
def columns_and_rows(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    while i <= w - 1:
        j = hal.global_idx(1)
        while not j >= h:
            y[j * w + i] = 3 * x[j * w + i]
            j += hal.grid_dim(1) * hal.block_dim(1)
        i += hal.grid_dim(0) * hal.block_dim(0)


@hal.kernel
def interior(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    j = hal.global_idx(1)
    while j < h:
        if 0 < j < h - 1:
            i = hal.global_idx(0)
            while i < w:
                if 0 < i < w - 1:
                    c = j * w + i
                    y[c] = x[c - 1] + x[c + 1] + x[c - w] + x[c + w] - 4 * x[c]
                i += hal.grid_dim(0) * hal.block_dim(0)
        j += hal.grid_dim(1) * hal.block_dim(1)


@hal.kernel
def loaded_ahead(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    j = hal.global_idx(1)
    while j < h:
        bias = x[j]
        if bias > 0:
            bias = 2 * x[j] // (w + 1)
        i = hal.global_idx(0)
        while i < w:
            y[j * w + i] = x[j * w + i] + bias
            i += hal.grid_dim(0) * hal.block_dim(0)
        if hal.global_idx(0) == 0:
            y[h * w + j] = bias
        j += hal.grid_dim(1) * hal.block_dim(1)


@hal.kernel
def sums_of_columns(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    while i < w:
        total = 0
        first = x[i]
        for j in range(h):
            total += x[j * w + i] * first
        if hal.global_idx(1) == 0:
            y[i] = total
        i += hal.grid_dim(0) * hal.block_dim(0)


@hal.kernel
def two_loops_in_each_row(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    j = hal.block_idx(1) * hal.block_dim(1) + hal.thread_idx(1)
    while j < h:
        i = hal.block_idx(0) * hal.block_dim(0) + hal.thread_idx(0)
        while i < w:
            y[j * w + i] = 3 * x[j * w + i]
            i += hal.grid_dim(0) * hal.block_dim(0)
        i = hal.global_idx(0) + 3
        while i < w:
            y[w * h + j * w + i] = x[j * w + i] + i
            i += hal.grid_dim(0) * hal.block_dim(0)
        j += hal.grid_dim(1) * hal.block_dim(1)


@hal.kernel
def wide_indices(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    wide = hal.int64(w)
    j = hal.int64(hal.global_idx(1))
    while j < hal.int64(h):
        i = hal.int64(hal.global_idx(0))
        while i < wide:
            y[j * wide + i] = 3 * x[j * wide + i]
            i += hal.int64(hal.grid_dim(0) * hal.block_dim(0))
        j += hal.int64(hal.grid_dim(1) * hal.block_dim(1))


@hal.kernel
def behind_a_return(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    first = hal.global_idx(0)
    j = hal.global_idx(1)
    total = hal.int32(0)
    if first >= w or j >= h:
        return
    while j < h:
        i = first
        while i < w:
            y[j * w + i] = 3 * x[j * w + i]
            total += x[j * w + i]
            i += hal.grid_dim(0) * hal.block_dim(0)
        j += hal.grid_dim(1) * hal.block_dim(1)
    y[w * h + hal.global_idx(1) * w + first] = total


@hal.kernel
def counted_down(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    j = h - 1 - hal.global_idx(1)
    while j >= 0:
        i = w - hal.global_idx(0)
        while i > 0:
            y[j * w + i - 1] = 3 * x[j * w + i - 1] + i
            i -= hal.grid_dim(0) * hal.block_dim(0)
        j = j - hal.grid_dim(1) * hal.block_dim(1)


@hal.kernel
def wide_and_down(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.int64(w * h) - hal.int64(hal.global_idx(0)) - 1
    if hal.global_idx(1) == 0:
        while i > -1:
            y[i] = 3 * x[i]
            i = -hal.int64(hal.grid_dim(0) * hal.block_dim(0)) + i


@hal.kernel
def rows_down_with_a_value(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    j = h - 1 - hal.global_idx(1)
    if j < 0:
        return
    while not j < 0:
        bias = x[j]
        i = hal.global_idx(0)
        while i < w:
            if i > 0 and x[i] > 0:
                y[j * w + i] = x[j * w + i] + x[j * w + i - 1] * bias
            i += hal.grid_dim(0) * hal.block_dim(0)
        j -= hal.grid_dim(1) * hal.block_dim(1)


@hal.kernel
def three_axes(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    k = hal.global_idx(2)
    if k >= 2:
        return
    while k < 2:
        j = h - 1 - hal.global_idx(1)
        while j >= 0:
            i = hal.global_idx(0)
            while i < w:
                y[(k * h + j) * w + i] = 3 * x[(k * h + j) * w + i]
                i += hal.grid_dim(0) * hal.block_dim(0)
            j -= hal.grid_dim(1) * hal.block_dim(1)
        k += hal.grid_dim(2) * hal.block_dim(2)


@hal.kernel
def by_ranges(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    down = hal.grid_dim(1) * hal.block_dim(1)
    for j in range(hal.global_idx(1), h, down):
        if hal.global_idx(0) == 0:
            y[w * h + j] = w
        for i in range(hal.global_idx(0), w, hal.grid_dim(0) * hal.block_dim(0)):
            y[j * w + i] = 3 * x[j * w + i]


@hal.kernel
def by_wide_ranges(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    wide, down = hal.int64(w), hal.int64(hal.grid_dim(1) * hal.block_dim(1))
    for j in range(hal.int64(hal.global_idx(1)), hal.int64(h), down):
        across = hal.grid_dim(0) * hal.block_dim(0)
        for i in range(hal.int64(hal.global_idx(0)), wide, hal.int64(across)):
            y[j * wide + i] = 3 * x[j * wide + i]


@hal.kernel
def by_ranges_down(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    down = hal.grid_dim(1) * hal.block_dim(1)
    across = hal.grid_dim(0) * hal.block_dim(0)
    for j in range(h - 1 - hal.global_idx(1), -1, -down):
        for i in range(w - 1 - hal.global_idx(0), -1, -across):
            y[j * w + i] = 3 * x[j * w + i]


@hal.kernel
def behind_other_work(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    first = hal.global_idx(0)
    bias = x[first]
    if first == 0 and hal.global_idx(1) < h:
        y[w * h + hal.global_idx(1)] = x[hal.global_idx(1)] + bias
    if first >= w or hal.global_idx(1) >= h:
        return
    for j in range(hal.global_idx(1), h, hal.grid_dim(1) * hal.block_dim(1)):
        for i in range(first, w, hal.grid_dim(0) * hal.block_dim(0)):
            y[j * w + i] = 3 * x[j * w + i] + bias


@hal.kernel
def under_a_loaded_test(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    total = hal.int32(0)
    if x[hal.global_idx(0)] > 0 and hal.global_idx(1) == 0:
        for k in range(hal.global_idx(0) + 1, w * h, hal.grid_dim(0) * hal.block_dim(0)):
            total += x[k]
        for turn in range(h):
            last = w * h - 1 - hal.global_idx(0)
            while last >= 0:
                total += x[last] * turn
                last -= hal.grid_dim(0) * hal.block_dim(0)
        y[2 * hal.global_idx(0)] = total
    if hal.global_idx(1) == 0:
        y[2 * hal.global_idx(0) + 1] = total + x[3]


@hal.kernel
def under_tests_within(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    for j in range(hal.global_idx(1), h, hal.grid_dim(1) * hal.block_dim(1)):
        bias = x[j]
        if bias // (w + 1) > 0:
            if hal.global_idx(0) == 0:
                y[w * h + j] = bias
            for i in range(hal.global_idx(0), w, hal.grid_dim(0) * hal.block_dim(0)):
                y[j * w + i] = x[j * w + i] + bias
        elif j % 2 == 0:
            for i in range(hal.global_idx(0), w, hal.grid_dim(0) * hal.block_dim(0)):
                if x[i] > 0:
                    y[j * w + i] = x[i] - bias
                else:
                    y[j * w + i] -= x[i]
        else:
            if hal.global_idx(0) == 0:
                y[w * h + j] = 7 - bias


@hal.kernel
def in_an_else(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    g = hal.global_idx(0)
    step = hal.grid_dim(0) * hal.block_dim(0)
    total = 3 * g
    if hal.global_idx(1) > 0:
        total = hal.int32(9)
    elif h > 3:
        total += 1
        for i in range(g, w * h, step):
            total = 5 * total + x[i]
        y[w * h + g] = total
    else:
        m = g
        while m < w * h:
            y[m] = x[m]
            m += step
        total -= 1
        for k in range(w * h - 1 - g, -1, -step):
            total = 3 * total + x[k]
    if hal.global_idx(1) == 0 and w > 0:
        y[w * h + 60 + g] = total


@hal.kernel
def divides_under_a_test(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    """Nothing may divide where the test does not hold."""
    if hal.global_idx(1) == 0:
        if w > 1:
            for i in range(hal.global_idx(0), 99 // (w - 1), hal.grid_dim(0) * hal.block_dim(0)):
                y[i] = x[i] + 30 // (w - 1)
        y[100 + hal.global_idx(0)] = 1


@hal.kernel
def continued(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    step = hal.grid_dim(0) * hal.block_dim(0)
    i = hal.global_idx(0)
    total = hal.int32(0)
    if hal.global_idx(1) > 0:
        return
    while i < w * h:
        if x[i] < 0:
            total += i
            i += step
            continue
        if x[i] > 50:
            i = i + step
            continue
        y[i] = 3 * x[i] - total
        i += step
    y[w * h + hal.global_idx(0)] = total


@hal.kernel
def continued_ranges(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    for j in range(hal.global_idx(1), h, hal.grid_dim(1) * hal.block_dim(1)):
        if x[j] == 7:
            continue
        for i in range(hal.global_idx(0), w, hal.grid_dim(0) * hal.block_dim(0)):
            if x[i] > 0:
                y[j * w + i] = x[i]
                continue
            if i % 3 == 0:
                continue
            y[j * w + i] = x[j * w + i] - x[i]


@hal.kernel
def continued_by_other_steps(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    """The steps are not the same, or something is set between them."""
    i = hal.global_idx(0)
    total = hal.int32(0)
    while i < w * h:
        if x[i] < 0:
            i += 2
            total += 1
            continue
        total += x[i]
        i += 1
    i = hal.global_idx(0)
    while i < w:
        if x[i] < 0:
            i += 1
            total += i
            i += 1
            continue
        i += 1
    k = hal.global_idx(0)
    while k < w * h:
        before = k
        k += 1
        if x[before] < 0:
            k = before + 3
            continue
        total += 3 * x[before]
        k = k + 3
    if hal.global_idx(1) == 0:
        y[hal.global_idx(0)] = total + i


KERNELS = [
    rows_and_columns, columns_and_rows, interior, loaded_ahead, sums_of_columns,
    two_loops_in_each_row, wide_indices, behind_a_return, counted_down,
    wide_and_down, rows_down_with_a_value, three_axes, by_ranges, by_wide_ranges,
    by_ranges_down, behind_other_work, under_a_loaded_test, under_tests_within, in_an_else,
    divides_under_a_test,
]  # fmt: skip


def launches() -> list[tuple[int, int, tuple[int, int, int], tuple[int, int, int]]]:
    sizes = [(0, 3), (1, 1), (7, 5), (40, 9), (64, 2)]
    blocks = [(16, 2, 1), (5, 3, 1), (1, 4, 1)]
    return [(w, h, (1 + w % 3, 1 + h % 2, 1), block) for w, h in sizes for block in blocks]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_nested_strides(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    for w, h, grid, block in launches():
        x = np.random.default_rng(w).integers(-99, 99, 2 * w * h + 180).astype("i4")
        y, expected = np.full((2, x.size), 5, "i4")
        llvm.call(function, lowered, {"y": y, "x": x, "w": w, "h": h}, grid, block)
        interpret(kernel, expected, x, vals=(w, h), grid=grid, block=block)
        np.testing.assert_array_equal(y, expected, f"{w} x {h} in {grid}, {block}")


CONTINUED = [continued, continued_ranges, continued_by_other_steps]


@pytest.mark.parametrize("kernel", CONTINUED, ids=lambda kernel: kernel.name)
def test_strides_with_continue(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    for w, h, grid, block in launches():
        x = np.random.default_rng(w).integers(-99, 99, 2 * w * h + 180).astype("i4")
        y, expected = np.full((2, x.size), 5, "i4")
        llvm.call(function, lowered, {"y": y, "x": x, "w": w, "h": h}, grid, block)
        interpret(kernel, expected, x, vals=(w, h), grid=grid, block=block)
        np.testing.assert_array_equal(y, expected, f"{w} x {h} in {grid}, {block}")


@hal.kernel
def from_a_value_before(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    i = 0
    while i < w:
        i += 1
    before = i
    i = hal.global_idx(0)
    while i < w:
        y[i] += 3 * x[i]
        i = before + 1


def test_an_index_that_does_not_grow_by_its_own_value(llvm: LLVM) -> None:
    lowered = from_a_value_before.lower()
    x = np.arange(200, dtype="i4")
    y, expected = np.full((2, 200), 5, "i4")
    launch: dict[str, Any] = {"grid": (2, 1, 1), "block": (64, 1, 1)}
    llvm.run(lowered, {"y": y, "x": x, "w": 90, "h": 1}, **launch)
    interpret(from_a_value_before, expected, x, vals=(90, 1), **launch)
    np.testing.assert_array_equal(y, expected)


@hal.kernel
def strides_down(y: Numbers, first: hal.int32, low: hal.int32, step: hal.int32):
    i = first - hal.global_idx(0)
    total = hal.int32(0)
    while i > low:
        total = total * 3 + i
        i -= step
    y[hal.global_idx(0)] = total


@hal.kernel
def strides_down_to(y: Numbers, first: hal.int32, low: hal.int32, step: hal.int32):
    i = first - hal.global_idx(0)
    total = hal.int32(0)
    while not i < low:
        total = total * 3 + i
        i += -step
    y[hal.global_idx(0)] = total


@hal.kernel
def strides_down_in_ifs(y: Numbers, first: hal.int32, low: hal.int32, step: hal.int32):
    total = hal.int32(0)
    g = hal.global_idx(0)
    if step != 5:
        i = first - g
        while i > low:
            total = total * 3 + i
            i -= step
    else:
        total = hal.int32(1)
    if g < 40:
        y[g] = total


def wrapped(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def sum_of(i: int, low: int, step: int) -> int | None:
    """The sum that a thread makes; None if its loop has 300 iterations or more."""
    total = turns = 0
    while i >= low:
        total, i, turns = wrapped(total * 3 + i), wrapped(i - step), turns + 1
        if turns == 300:
            return None
    return total


@pytest.mark.parametrize(
    "kernel", [strides_down, strides_down_to, strides_down_in_ifs], ids=lambda k: k.name
)
def test_strides_that_count_down_and_wrap(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    ends = [0, 1, 30, 100, -5, 2**31 - 1, 2**31 - 3, -(2**31), -(2**31) + 20]
    steps = [1, 7, 2**31 - 1, 1431655786, 2**30, -1, -(2**31), 0]
    checked = 0
    for first in ends:
        for low in [-1, 0, 5, -2, -40, 2**31 - 1, 2**31 - 30, -(2**31), -(2**31) + 30]:
            least = low if kernel is strides_down_to else low + 1
            for step in steps:
                starts = (wrapped(first - t) for t in range(40))
                made = (sum_of(start, least, step) for start in starts)
                sums = list(itertools.takewhile(lambda total: total is not None, made))
                if len(sums) == 40:
                    y = np.zeros(40, np.int32)
                    vals = {"first": first, "low": low, "step": step}
                    llvm.call(function, lowered, {"y": y, **vals}, (2, 1, 1), (20, 1, 1))
                    assert y.tolist() == sums, vals
                    checked += any(sums)
    assert checked > 100


@hal.kernel
def wide_strides_down(y: hal.Ptr[hal.int64], first: hal.int64, low: hal.int64, step: hal.int64):
    i = first - hal.int64(hal.global_idx(0))
    total = hal.int64(0)
    while i > low:
        total = total * 3 + i
        i -= step
    y[hal.global_idx(0)] = total


def test_strides_down_to_a_number_far_above_do_nothing(llvm: LLVM) -> None:
    """The distance that was left, `first - low`, wrapped."""
    lowered = wide_strides_down.lower()
    function = llvm.function(lowered)
    for first in (-(2**40), 2**62):
        for low in (2**63 - 1, 2**63 - 2**33):
            y = np.ones(40, np.int64)
            vals = {"first": first, "low": low, "step": 2**33}
            llvm.call(function, lowered, {"y": y, **vals}, (2, 1, 1), (20, 1, 1))
            assert not y.any(), vals


@hal.kernel
def near_the_greatest(y: Numbers, b: hal.int32, n: hal.int32, s: hal.int32):
    for i in range(b + hal.global_idx(0), n, s):
        y[hal.global_idx(0)] = 3 * y[hal.global_idx(0)] + i
    for k in range(hal.int64(b - hal.global_idx(0)), hal.int64(n), hal.int64(s)):
        if k % 3 == 1:
            continue
        y[hal.global_idx(0)] = 5 * y[hal.global_idx(0)] + hal.int32(k)


def test_a_range_by_a_late_step_ends_where_the_interpreter_ends(llvm: LLVM) -> None:
    lowered = near_the_greatest.lower()
    function = llvm.function(lowered)
    most = 2**31 - 1
    bounds = [(5, 60), (0, -3), (60, 5), (most - 90, most), (60 - 2**31, -(2**31)), (7, 7)]
    for b, n in bounds:
        for s in (1, 7, 64, 2**30, most, -1, -64, -most - 1, 0):
            if abs(n - b) > 99 * max(1, abs(s)):
                continue
            y, expected = np.full((2, 24), 5, "i4")
            llvm.call(function, lowered, {"y": y, "b": b, "n": n, "s": s}, (3, 1, 1), (8, 1, 1))
            if s:  # without a step there is no iteration, and the interpreter says so
                interpret(near_the_greatest, expected, vals=(b, n, s), grid=3, block=8)
            np.testing.assert_array_equal(y, expected, f"range({b}, {n}, {s})")


@hal.kernel
def ends_where_another_test_fails(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    while i < w:
        y[i] = 3 * x[i]
        i = i + 32 if (i <= 2**31 - 1 - 32 if h > 0 else i >= 90) else w


@hal.kernel
def ends_where_a_late_test_fails(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    across = hal.grid_dim(0) * hal.block_dim(0)
    i = hal.global_idx(0)
    while i < w:
        y[i] = 3 * x[i]
        i = i + across if (i <= 2**31 - 1 - across if h > 0 else i >= 90) else w


@pytest.mark.parametrize(
    "kernel", [ends_where_another_test_fails, ends_where_a_late_test_fails], ids=lambda k: k.name
)
def test_a_stride_that_ends_by_a_test_of_its_own(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    x = np.arange(1, 101, dtype="i4")
    for h in (1, 0, -1):
        y, expected = np.full((2, 100), 5, "i4")
        launch: dict[str, Any] = {"grid": (2, 1, 1), "block": (16, 1, 1)}
        llvm.call(function, lowered, {"y": y, "x": x, "w": 100, "h": h}, **launch)
        interpret(kernel, expected, x, vals=(100, h), **launch)
        np.testing.assert_array_equal(y, expected, f"h {h}")

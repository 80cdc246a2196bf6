"""Loops in which threads stride over rows and columns run in step, and do what they did."""

from __future__ import annotations

import pickle
import re
from random import Random
from typing import Any

import numpy as np
import pytest
from toolchains import LLVM

import hal_core as hal
from hal_core.ir import UOp
from hal_core.ir.blocks.nests import with_strides
from hal_core.render import LLVMRenderer
from hal_core.testing import interpret

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


KERNELS = [
    rows_and_columns, columns_and_rows, interior, loaded_ahead, sums_of_columns,
    two_loops_in_each_row, wide_indices,
]  # fmt: skip


def launches() -> list[tuple[int, int, tuple[int, int, int], tuple[int, int, int]]]:
    sizes = [(0, 3), (1, 1), (7, 5), (40, 9), (64, 2)]
    blocks = [(16, 2, 1), (5, 3, 1), (1, 4, 1)]
    return [(w, h, (1 + w % 3, 1 + h % 2, 1), block) for w, h in sizes for block in blocks]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_nested_strides_are_vectors_and_give_what_the_interpreter_gives(
    llvm: LLVM, kernel: Any
) -> None:
    lowered = kernel.lower()
    assert with_strides(lowered.uops)[1]
    text = str(llvm.optimised(LLVMRenderer().render(lowered))[0])
    assert re.search(r"(load|store) <\d+ x i32>", text)
    function = llvm.function(lowered)
    for w, h, grid, block in launches():
        x = np.random.default_rng(w).integers(-99, 99, 2 * w * h + 80).astype("i4")
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


def test_an_index_that_does_not_grow_by_its_own_value_is_no_stride(llvm: LLVM) -> None:
    lowered = from_a_value_before.lower()
    assert not with_strides(lowered.uops)[1]
    x = np.arange(200, dtype="i4")
    y, expected = np.full((2, 200), 5, "i4")
    launch: dict[str, Any] = {"grid": (2, 1, 1), "block": (64, 1, 1)}
    llvm.run(lowered, {"y": y, "x": x, "w": 90, "h": 1}, **launch)
    interpret(from_a_value_before, expected, x, vals=(90, 1), **launch)
    np.testing.assert_array_equal(y, expected)


@hal.kernel
def many_values(y: Numbers, x: Inputs, w: hal.int32, h: hal.int32):
    j = hal.global_idx(1)
    while j < h:
        a, b, c = x[j] // 3, x[j] % 5, hal.truncdiv(x[j], 7)
        d, e, f = x[j] + 1, x[j] * 2, x[j] - 3
        i = hal.global_idx(0)
        while i < w:
            y[j * w + i] = a + b * c + d * e + f
            i += hal.grid_dim(0) * hal.block_dim(0)
        j += hal.grid_dim(1) * hal.block_dim(1)


def test_the_same_strides_give_the_same_nodes() -> None:
    """Wherever in memory the nodes of a kernel are."""
    random = Random(0)
    found: set[tuple[str, ...]] = set()
    for _ in range(20):
        others = [UOp("CONST") for _ in range(1000)]
        random.shuffle(others)
        del others[:500]  # new nodes take their places
        uops = pickle.loads(pickle.dumps(many_values.lower())).uops
        found.add(tuple(node.arg for node in with_strides(uops)[0] if node.op == "VAR"))
    assert len(found) == 1

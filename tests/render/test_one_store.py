"""Chains of IFs of which each path stores one element, beside the interpreter."""

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


@hal.kernel
def by_returns(y: Bytes, x: ByteInputs, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n:
        return
    if x[i] == 32:
        y[i] = 0
        return
    if i > 0 and x[i - 1] != 32:
        y[i] = 1
        return
    y[i] = x[i]


@hal.kernel
def by_elif(y: Bytes, x: ByteInputs, n: hal.int32):
    """In place, and with other stores and loads in the paths, ahead of the last."""
    i = hal.global_idx(0)
    if i < n:
        if y[i] == 3:
            y[i] = 7
            y[i] = y[i] + 1
        elif x[i] & 1 == 1:
            if y[i] == 5:
                y[i] = x[i] * 2
            else:
                y[n + i] = 9
                y[i] = y[n + i] + x[i]
        else:
            y[i] += x[i]


@hal.kernel
def in_a_loop(y: Bytes, x: ByteInputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        for k in range(n // 8):
            v = x[i] + hal.uint8(k)
            p = (k % 2) * n + i
            if v > 100:
                y[p] = v
            elif v > 50:
                y[p] = 2
            elif v > 20:
                y[p] = y[p] + 1
            else:
                y[p] = 4


@hal.kernel
def signs(y: Bytes, x: ByteInputs, n: hal.int32):
    """Store elements of another dtype, by a name for the memory."""
    i = hal.global_idx(0)
    whole = hal.bitcast(hal.int16, y)
    if i < n // 2:
        v = hal.int16(x[i]) - 100
        if v > 9:
            whole[i] = 1
        elif v < -9:
            whole[i] = -1
        else:
            whole[i] = 0


@pytest.mark.parametrize(
    "kernel", [by_returns, by_elif, in_a_loop, signs], ids=lambda kernel: kernel.name
)
def test_chains_of_stores_give_what_the_interpreter_gives(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    for n in (-3, 0, 1, 7, 64, 77, 500):
        random = np.random.default_rng(n + 3)
        x = random.integers(28, 36, max(1, n)).astype("u1") * random.integers(1, 5, max(1, n), "u1")
        y = random.integers(0, 7, 2 * len(x) + 70).astype("u1")
        expected = y.copy()
        for block in (64, 5):
            grid, shape = (max(1, -(-n // block)), 1, 1), (block, 1, 1)
            llvm.call(function, lowered, {"y": y, "x": x, "n": n}, grid, shape)
            interpret(kernel, expected, x, vals=(n,), grid=grid, block=shape)
            np.testing.assert_array_equal(y, expected, f"{n} in blocks of {block}")

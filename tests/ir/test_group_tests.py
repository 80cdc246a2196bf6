"""A test of the block beside the test of a thread's index decides nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import hal_core as hal
from hal_core.ir.blocks.group_tests import add_group_tests
from hal_core.ir.verify import verify
from hal_core.testing import interpret

# mypy: disable-error-code="no-untyped-def"

Ints = hal.Ptr[hal.int32]


@hal.kernel
def below(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] * 2 + 1


@hal.kernel
def mirrored(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if n - 1 >= i:
        y[i] = 7
    else:
        y[i] = 5


@hal.kernel
def leaving(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i > n:
        return
    y[i] += 3


@hal.kernel
def in_a_loop(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    for k in range(3):
        if i <= n - k:
            y[i] += k + 1


@hal.kernel
def two_axes(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i >= n:
        return
    if j < 3:
        y[j * 20 + i] = 9


@hal.kernel
def above(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i > n:
        y[i] = 1


@hal.kernel
def both(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if 0 < i < n:
        y[i] = 1


@hal.kernel
def own_bound(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i < y[i]:
        y[i] = n


@hal.kernel
def of_the_block(y: Ints, n: hal.int32):
    if hal.block_idx(0) < n:
        y[hal.global_idx(0)] = 1


CHANGED = [below, mirrored, leaving, in_a_loop, two_axes]
UNCHANGED = [above, both, own_bound, of_the_block]


@pytest.mark.parametrize("function", CHANGED + UNCHANGED, ids=lambda function: function.name)
def test_every_thread_decides_as_before(function: hal.KernelFunction) -> None:
    kernel = function.lower()
    changed = add_group_tests(kernel)
    verify(changed)
    assert (len(changed.uops) > len(kernel.uops)) is (function in CHANGED)
    for n in (-3, 0, 1, 4, 7, 8, 9, 19, 20, 2**31 - 1):
        before, after = (np.arange(80, dtype="i4") for _ in range(2))
        for one, y in ((kernel, before), (changed, after)):
            interpret(one, y, vals=(n,), grid=(5, 4 if function is two_axes else 1), block=(4, 1))
        assert before.tolist() == after.tolist(), n

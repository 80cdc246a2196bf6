"""Variables that count, and tests of an index, do what the interpreter does."""

from __future__ import annotations

import numpy as np
import pytest
from counting_kernels import KERNELS
from toolchains import LLVM

import hal_core as hal
from hal_kernel.interpreter import interpret


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_threads_that_count(llvm: LLVM, kernel: hal.KernelFunction) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    x = np.random.default_rng(0).integers(-5, 9, 256).astype("i4")
    for n in (100 - 2**31, -3, 0, 1, 2, 3, 5, 7):
        if kernel.name == "downwards" and n < -9:
            continue  # 2**30 iterations
        for block in (2, 37):
            y, expected = np.full((2, 256), 3, "i4")
            llvm.call(function, lowered, {"y": y, "x": x, "n": n}, (2, 1, 1), (block, 1, 1))
            interpret(kernel, expected, x, vals=(n,), grid=2, block=block)
            np.testing.assert_array_equal(y, expected, f"{n} in blocks of {block}")

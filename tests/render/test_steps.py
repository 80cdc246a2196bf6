"""Guards that hold for every c-th thread of a row only: the threads between them are not run."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from toolchains import LLVM

import hal_core as hal
from hal_cpu.render import LLVMRenderer
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Ints = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]
THREADS = 64
_STEPS = r"%thread\.x\.(\w+\.)?steps"


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


BLOCKS = [doubled_step, doubled_mask, last_of_each]
KERNELS = [*BLOCKS, every, others_return, by_a_mask, of_a_block, by_a_constant]
NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 24, 63, 64, 1000, 2**31 - 1]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_threads_run_in_steps_and_give_what_the_interpreter_gives(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    assert re.search(_STEPS, LLVMRenderer().render(lowered))
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


@pytest.mark.parametrize("kernel", BLOCKS, ids=lambda kernel: kernel.name)
def test_no_thread_of_a_tree_divides(llvm: LLVM, kernel: Any) -> None:
    text = str(llvm.optimised(LLVMRenderer().render(kernel.lower()))[0])
    assert not re.search(r"[su](rem|div) <", text)
    assert len(re.findall(r" [su](rem|div) ", text)) < 9  # those of the block, and of a level


@pytest.mark.parametrize("kernel", BLOCKS, ids=lambda kernel: kernel.name)
def test_vectors_that_load_below_what_they_store_begin_with_the_last_threads(kernel: Any) -> None:
    text = LLVMRenderer().render(kernel.lower())
    backwards = re.search(r"sub nsw i32 %v\.\d+, %thread\.x\.masked", text)
    assert bool(backwards) == (kernel is last_of_each)


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


@pytest.mark.parametrize(
    "kernel", [by_a_small_constant, another_remainder, beside_another_effect], ids=lambda k: k.name
)
def test_other_tests_of_remainders_have_no_steps(kernel: Any) -> None:
    assert not re.search(_STEPS, LLVMRenderer().render(kernel.lower()))

"""Kernels in two forms: which have two, and what their text says."""

from __future__ import annotations

import re
from typing import Any

import pytest

import hal_core as hal
from hal_cpu.render import LLVMRenderer
from hal_kernel.ir.blocks.plain import gathers, plain
from hal_kernel.ir.fold import fold

# mypy: disable-error-code="no-untyped-def"

Out, In = hal.Ptr[hal.int32], hal.ConstPtr[hal.int32]
Floats, FloatsIn = hal.Ptr[hal.float32], hal.ConstPtr[hal.float32]


@hal.kernel
def guarded(y: Out, x: In, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2 * x[i]


@hal.kernel
def stencil(y: Out, x: In, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if 0 < i < w - 1 and j < h:
        y[j * w + i] = x[j * w + i - 1] + x[j * w + i + 1]


@hal.kernel
def dot(y: Floats, x: FloatsIn, a: FloatsIn, w: hal.int32):
    """`y + x * a` is fused ahead of both forms."""
    i = hal.global_idx(0)
    for k in range(w):
        y[i] += x[w * i + k] * a[k]


@hal.kernel(contract=False)
def dot_apart(y: Floats, x: FloatsIn, a: FloatsIn, w: hal.int32):
    i = hal.global_idx(0)
    for k in range(w):
        y[i] += x[w * i + k] * a[k]


@hal.kernel
def exponential(y: Floats, x: FloatsIn, w: hal.int32):
    """A formula in both forms."""
    i = hal.global_idx(0)
    y[i] = hal.exp(x[w * i])


@hal.kernel
def placed(y: Out, x: In, n: hal.int32):
    """The order of atomics would be another."""
    i = hal.global_idx(0)
    if x[i] > n:
        y[hal.atomic_add(y, 0, 1)] = i


@hal.kernel(block=64)
def shared(y: Out, x: In):
    s = hal.shared(hal.int32, 64)
    t = hal.thread_idx(0)
    s[t] = x[t]
    hal.barrier()
    y[t] = s[63 - t]


@hal.kernel
def large(y: Out, x: In, w: hal.int32):
    i = hal.global_idx(0)
    total = 0
    for k in hal.unroll(80):
        total += x[w * i + k * k]
    y[i] = total


@hal.kernel
def gathered(y: Out, x: In, p: In):
    i = hal.global_idx(0)
    y[i] = x[p[i]]


@hal.kernel
def scattered(y: Out, x: In, p: In):
    i = hal.global_idx(0)
    y[p[i]] = x[i]


@hal.kernel
def apart(y: Out, x: In):
    i = hal.global_idx(0)
    y[i] = x[3 * i]


@hal.kernel
def rows(y: Out, x: In, w: hal.int32):
    i = hal.global_idx(0)
    total = 0
    for k in range(w):
        total += x[w * i + k]
    y[i] = total


@hal.kernel
def columns(y: Out, x: In, n: hal.int32, w: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        total = 0
        for k in range(n):
            total += x[k * w + i]
        y[i] = total


@hal.kernel
def float_sums(y: Floats, x: FloatsIn, w: hal.int32):
    i = hal.global_idx(0)
    for k in range(w):
        y[i] += x[w * i + k]


@hal.kernel
def divided(y: Out, x: In, w: hal.int32):
    i = hal.global_idx(0)
    y[i] = x[i // w]


@hal.kernel
def chosen(y: Out, x: In):
    i = hal.global_idx(0)
    if x[i] > 3:
        y[i] = 1
    else:
        y[i + 1] = x[i]


@hal.kernel
def seldom(y: Floats, x: FloatsIn, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        v = x[i]
        if v > 0.99:
            v = hal.log(v)
        y[i] = v


@hal.kernel
def seldom_goes_on(y: Floats, x: FloatsIn, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] < 0.99:
            y[i] = 0.0
            return
        y[i] = 1.0 / x[i]


@hal.kernel
def never_seldom(y: Floats, x: FloatsIn, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = hal.log(x[i])


SELDOM = [seldom, seldom_goes_on]
TWO = [dot, dot_apart, gathered, scattered, apart, rows, columns, float_sums, divided, exponential]
TWO += SELDOM
ONE = [guarded, stencil, placed, shared, large, chosen, never_seldom]


@pytest.mark.parametrize("kernel", TWO + ONE, ids=lambda kernel: kernel.name)
def test_which_kernels_have_two_forms(kernel: hal.KernelFunction) -> None:
    text = LLVMRenderer(both=True).render(kernel.lower())
    assert (f"@{kernel.name}.plain(" in text) is (kernel in TWO)
    if kernel in ONE:
        assert text == LLVMRenderer().render(kernel.lower())


def test_the_plain_form_promises_nothing_of_its_threads() -> None:
    text = LLVMRenderer(both=True).render(columns.lower())
    choice, cut, second = re.split(r"\ndefine internal void @columns.*", text)
    assert choice.count("tail call") == 2 and "i64 6" in choice
    assert "!llvm.access.group" in cut
    assert "!llvm" not in second.partition("\n!0 =")[0]
    # The loop over k stands inside the one over the threads.
    order = [re.findall(r"^(k|thread\.x)\S*\.body:", form, re.MULTILINE) for form in (second, cut)]
    assert order[0] == ["thread.x", "k"]
    assert order[1].index("k") < order[1].index("thread.x", 1)


@pytest.mark.parametrize("kernel", SELDOM, ids=lambda kernel: kernel.name)
def test_threads_of_the_plain_form_jump_over_what_few_need(kernel: hal.KernelFunction) -> None:
    """In vectors all would compute it: nine times as long, if one in 100 needs it."""
    text = LLVMRenderer(both=True).render(kernel.lower())
    _, cut, second = re.split(rf"\ndefine internal void @{kernel.name}.*", text)
    off = re.search(r"(!\d+) = !{!\"llvm.loop.vectorize.enable\", i1 false}", text)
    assert off is not None
    loop = re.search(rf"(!\d+) = distinct !{{!\d+, {off[1]}}}", text)
    assert loop is not None
    assert f"!llvm.loop {loop[1]}\n" in second
    assert f"!llvm.loop {loop[1]}\n" not in cut


def test_larger_kernels_have_one_form() -> None:
    kernel = fold(large.lower())
    assert gathers(kernel) and plain(kernel) is None


def loads(index: Any) -> hal.KernelFunction:
    @hal.kernel
    def loads(y: Out, x: In, n: hal.int32):
        i = hal.global_idx(0)
        y[i] = x[index(i, hal.global_idx(1), n)]

    return loads


@hal.func
def next_one(i, j, n):
    return i + 1


@hal.func
def in_a_row(i, j, n):
    return j * n + i


@hal.func
def in_a_shared_row(i, j, n):
    return hal.int64(i) - hal.int64(n)


@hal.func
def the_same(i, j, n):
    return j


@hal.func
def backwards(i, j, n):
    return n - i


@hal.func
def in_pairs(i, j, n):
    return i // 2


@hal.func
def in_a_column(i, j, n):
    return i * n + j


@hal.func
def low_bits(i, j, n):
    return i & 3


@pytest.mark.parametrize(
    ("index", "expected"),
    [(next_one, False), (in_a_row, False), (in_a_shared_row, False), (the_same, False),
     (backwards, True), (in_pairs, True), (in_a_column, True), (low_bits, True)],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_threads_access_neighbours_or_gather(index: Any, expected: bool) -> None:
    assert gathers(loads(index).lower()) is expected

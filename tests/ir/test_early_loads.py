"""Loads of elements that an IF stores on both sides are done ahead of it, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hal_core as hal
from hal_cpu.render import LLVMRenderer
from hal_kernel.interpreter import interpret
from hal_kernel.ir.blocks import early_loads
from hal_kernel.ir.blocks.early_loads import with_early_loads

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


MOVED = [one_side, other_side, chain, stores_again]
KEPT = [
    not_stored, stored_in_a_loop, returns, loads_behind_a_store, index_of_memory, behind_an_atomic,
    other_zero,
]  # fmt: skip


def moved(kernel: Any) -> int:
    uops = kernel.lower().uops
    made = with_early_loads(uops)
    assert set(made) == set(uops)
    assert len(made) == len(uops)
    for n, node in enumerate(made):
        assert set(node.src) <= set(made[:n])
    order = {node: n for n, node in enumerate(uops)}
    places = {node: n for n, node in enumerate(made)}
    return sum(
        node.op == "LOAD"
        and any(
            block.op == "IF" and order[block] < order[node] and places[block] > places[node]
            for block in uops
        )
        for node in uops
    )


@pytest.mark.parametrize("kernel", MOVED, ids=lambda kernel: kernel.name)
def test_a_load_of_what_both_sides_store_is_moved(kernel: Any) -> None:
    assert moved(kernel) == 1


@pytest.mark.parametrize("kernel", KEPT, ids=lambda kernel: kernel.name)
def test_any_other_load_stays(kernel: Any) -> None:
    assert moved(kernel) == 0


@pytest.mark.parametrize("kernel", [*MOVED, *KEPT], ids=lambda kernel: kernel.name)
def test_the_values_stay(kernel: Any) -> None:
    n = 40
    x = np.random.default_rng(1).normal(0, 2, n).astype("f4")
    start = np.arange(2 * n, dtype="f4")
    expected = start.copy()
    interpret(kernel, expected, x, vals=(n,), grid=1, block=64)
    device = hal.Device["CPU"]
    y = hal.Buffer.from_numpy(start, device)
    device.compile(kernel)(y, hal.Buffer.from_numpy(x, device), vals=(n,), grid=1, block=64)
    np.testing.assert_array_equal(y.numpy(), expected)


def test_a_renderer_writes_the_load_ahead_of_the_test() -> None:
    text = LLVMRenderer().render(one_side.lower())
    test = text.index("fcmp ogt")
    before = text[text.rindex(".body:", 0, test) : text.index("br ", test)]
    assert before.count("load float") == 2


def test_a_kernel_without_a_store_behind_an_else_is_left_at_the_first_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @hal.kernel
    def chosen(y: Floats, n: hal.int32):
        i = hal.global_idx(0)
        shade = hal.float32(0)
        if i < n:
            y[i] = 1.0
            shade = y[0]
        else:
            shade = hal.exp(y[1])
        y[i] = shade

    def fail(*arguments: object) -> None:
        raise AssertionError("the nodes are looked at again")

    monkeypatch.setattr(early_loads, "_Moving", fail)
    uops = chosen.lower().uops
    assert "ELSE" in [node.op for node in uops]
    assert with_early_loads(uops) is uops

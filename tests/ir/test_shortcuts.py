"""Conditions of which a part may not run become nested IFs."""

from __future__ import annotations

import random

import numpy as np
import pytest
from builder import Builder
from test_returns import ops

import hal_core as hal
from hal_core.dtypes import bool_
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel
from hal_kernel.ir.blocks.returns import without_returns
from hal_kernel.ir.blocks.shortcuts import without_shortcuts
from hal_kernel.ir.fold import fold
from hal_kernel.ir.verify import verify

# mypy: disable-error-code="no-untyped-def"

Ints = hal.Ptr[hal.int32]


@hal.kernel
def both(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i < n and y[i] > 0:
        y[i] = 1


@hal.kernel
def all_three(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i < n and y[i] > 0 and y[i + 1] > 0:
        y[i] = 1


@hal.kernel
def returned(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n or y[i] > 0 or i % n == 3:
        return
    y[i] = 1


@hal.kernel
def not_both(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if not (i >= n or y[i] > 0):
        y[i] = 1


@hal.kernel
def either(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i < n or y[0] > 0:
        y[i] = 1


@hal.kernel
def otherwise(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i < n and y[i] > 0:
        y[i] = 1
    else:
        y[0] = 1


@hal.kernel
def kept(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    c = i < n and y[i] > 0
    if c:
        y[i] = 1
    y[i + 1] = hal.int32(c)


@hal.kernel
def around_a_barrier(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if n > 0 and n % 3 == 1:
        hal.barrier()
        y[i] = 1


IN_ONE = "IF ELSE ENDIF"


@hal.kernel
def while_all(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    while i < n and y[i] > 0 and y[i + 1] > 0:
        i += 1
    y[i] = 1


@hal.kernel
def while_either(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    while not (i < n and y[i] > 0):
        i += 1
    y[i] = 1


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (both, "IF IF STORE ENDIF ENDIF"),
        (all_three, "IF IF IF STORE ENDIF ENDIF ENDIF"),
        (returned, "NOT IF NOT IF NOT IF STORE ENDIF ENDIF ENDIF"),
        (not_both, "NOT IF NOT IF STORE ENDIF ENDIF"),
        (either, f"{IN_ONE} IF STORE ENDIF"),
        (otherwise, f"{IN_ONE} IF STORE ELSE STORE ENDIF"),
        (kept, f"{IN_ONE} IF STORE ENDIF STORE"),
        (while_all, "NOT IF ENDIF NOT IF ENDIF NOT IF ENDIF STORE"),
        (while_either, f"{IN_ONE} IF ENDIF STORE"),
        (around_a_barrier, f"{IN_ONE} IF BARRIER STORE ENDIF"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_second_part_goes_into_the_first(kernel: hal.KernelFunction, expected: str) -> None:
    lowered = fold(kernel.lower())
    made = lowered._replace(uops=without_shortcuts(without_returns(lowered.uops)))
    verify(made)
    assert ops(made.uops) == expected


def drawn(seed: int) -> Kernel:
    """A store under a condition of sides that set a variable, each with a load in it."""
    rng = random.Random(seed)
    b = Builder("drawn", "y: int32*, n: int32")
    place = b.index()

    def compared():
        value = b.load("y", place) if rng.random() < 0.7 else b.params["n"]
        return b.op(rng.choice(["LT", "GT"]), value, b.const(rng.randint(-2, 2)))

    def condition(depth: int):
        if not depth or rng.random() < 0.2:
            return compared()
        choice = b.add("VAR", bool_, arg="choice")
        block = b.if_(condition(depth - 1))
        decides = rng.random() < 0.8 and rng.randint(0, 1)
        for side in (0, 1):
            constant = b.const(rng.random() < 0.5, bool_) if side == decides else None
            b.set(choice, constant or condition(depth - 1))
            if not side:
                b.else_(block)
        b.end(block)
        found = b.get(choice)
        return b.op("NOT", found) if rng.random() < 0.4 else found

    if rng.random() < 0.3:
        loop = b.loop()
        with b.when(condition(3)):
            b.break_(loop)
        b.store("y", place, b.const(7))
        b.break_(loop)
        b.end(loop)
    block = b.if_(condition(3))
    b.store("y", place, b.const(9))
    if rng.random() < 0.2:
        b.else_(block)
        b.store("y", place, b.const(8))
    b.end(block)
    return b.kernel()


def test_drawn_conditions() -> None:
    changed = 0
    for seed in range(200):
        kernel = drawn(seed)
        made = kernel._replace(uops=without_shortcuts(kernel.uops))
        verify(made)
        changed += made.uops is not kernel.uops
        for n in (-1, 0, 1):
            results = []
            for version in (kernel, made):
                y = np.arange(-3, 4, dtype=np.int32)
                interpret(version, y, vals=(n,), grid=1, block=7)
                results.append(y.tolist())
            assert results[0] == results[1], seed
    assert changed > 50

"""When threads may be interleaved access by access."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from slices import usual

import hal_core as hal
from hal_kernel.ir.blocks.independence import stores_last


@hal.kernel
def one_store(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + x[i]


@hal.kernel
def loads_in_a_loop(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32):
    total = hal.float32(0)
    for k in range(n):
        total += x[k]
    y[0] = total


@hal.kernel
def store_in_a_loop(y: hal.Ptr[hal.float32], n: hal.int32):
    for k in range(n):
        y[k] = y[k + 1]


@hal.kernel
def two_stores(y: hal.Ptr[hal.float32], z: hal.Ptr[hal.float32]):
    i = hal.global_idx(0)
    y[i] = 1
    z[i] = 2


@hal.kernel
def through_memory(
    y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], p: hal.ConstPtr[hal.int32]
):
    i = hal.global_idx(0)
    y[2 * i] = x[i]
    t = y[p[i]]
    y[2 * i + 1] = t + 1


@hal.kernel
def tiles(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]):
    left = hal.shared(hal.float32, 64)
    right = hal.shared(hal.float32, 64)
    t = hal.thread_idx(0)
    left[t] = x[t]  # arrays of their own, and no pointer leads into them
    right[t] = x[t + 64]
    y[t] = 0.0


@hal.kernel
def one_tile_twice(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]):
    tile = hal.shared(hal.float32, 64)
    t = hal.thread_idx(0)
    tile[t] = x[t]
    y[t] = tile[t] * 2.0


@hal.kernel
def counter(y: hal.Ptr[hal.int32]):
    hal.atomic_add(y, hal.thread_idx(0), 1)


@hal.kernel
def store_in_a_while(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]):
    k = 0
    while x[k] > 0:
        y[k] = 1.0
        k += 1


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [(one_store, True), (loads_in_a_loop, True), (store_in_a_loop, False), (two_stores, False),
     (through_memory, False), (tiles, True), (one_tile_twice, False), (counter, False),
     (store_in_a_while, False)],
    ids=lambda value: getattr(value, "name", str(value)),
)  # fmt: skip
def test_stores_last(kernel: Any, expected: bool) -> None:
    assert stores_last(kernel.lower().uops) is expected


# Kernels whose thread i stores to y[2 i] and y[2 i + 1] only and sees its own earlier stores;
# p[i] is 2 i, which no compiler knows.


@hal.kernel
def load_behind_a_store(
    y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], p: hal.ConstPtr[hal.int32]
):
    i = hal.global_idx(0)
    a = y[2 * i]
    y[p[i] + 1] = x[i]
    b = y[2 * i + 1]
    y[p[i]] = b + a


@hal.kernel
def store_load_store(
    y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], p: hal.ConstPtr[hal.int32]
):
    i = hal.global_idx(0)
    y[2 * i + 1] = x[i]
    y[2 * i] = y[p[i] + 1] + 1
    y[p[i] + 1] = y[2 * i] + y[p[i] + 1]


@hal.kernel
def back_and_forth(
    y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], p: hal.ConstPtr[hal.int32]
):
    i = hal.global_idx(0)
    y[2 * i] = x[i] + 3
    y[2 * i + 1] = x[i]
    for _ in range(3):
        y[p[i] + 1] = y[2 * i + 1] + y[p[i]]
        y[2 * i] = y[p[i] + 1]


@hal.kernel
def overwritten(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], p: hal.ConstPtr[hal.int32]):
    i = hal.global_idx(0)
    y[2 * i] = x[i]
    y[p[i]] = x[i] + 5
    y[2 * i + 1] = y[2 * i]


@hal.kernel
def store_in_a_branch(
    y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], p: hal.ConstPtr[hal.int32]
):
    i = hal.global_idx(0)
    y[2 * i] = x[i]
    y[2 * i + 1] = x[i] + 1
    t = x[i]
    if t > 3:
        y[p[i]] = t + 5
        t = y[2 * i]
    y[2 * i + 1] = t + y[p[i]]


X = np.arange(1024, dtype="f4") % 13
OWN_STORES = [  # and what y[2 i] and y[2 i + 1] are in the end, when all y were 1
    (through_memory, X, X + 1),
    (load_behind_a_store, X + 1, X),
    (store_load_store, X + 1, 2 * X + 1),
    (back_and_forth, 8 * X + 12, 8 * X + 12),
    (overwritten, X + 5, X + 5),
    (store_in_a_branch, np.where(X > 3, X + 5, X), np.where(X > 3, 2 * X + 10, 2 * X)),
]


@pytest.mark.parametrize(
    ("kernel", "even", "odd"), OWN_STORES, ids=[kernel.name for kernel, _, _ in OWN_STORES]
)
@pytest.mark.parametrize("compiler", usual(["llvm", "gcc", "clang"], "llvm", "gcc"))
def test_P8_a_thread_sees_its_own_earlier_stores(
    compiler: str, kernel: Any, even: Any, odd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gcc reordered them when it was told that the loop has no dependences at all."""
    pytest.importorskip("hal_cpu", reason="hal-cpu is not installed here")
    monkeypatch.setenv("CPU_CC", compiler)
    device, count = hal.Device["CPU"], len(X)
    try:
        program = device.compile(kernel.lower())  # anew for each compiler
    except hal.CompilerUnavailable as error:
        pytest.skip(str(error))
    x = hal.Buffer.from_numpy(X, device)
    where = hal.Buffer.from_numpy(2 * np.arange(count, dtype="i4"), device)
    for block in (256, 1):
        y = hal.Buffer.from_numpy(np.ones(2 * count, "f4"), device)
        program(y, x, where, threads=count, block=block)
        assert np.array_equal(y.numpy(), np.stack([even, odd], 1).ravel()), block

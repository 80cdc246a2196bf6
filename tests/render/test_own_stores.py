"""A thread sees what it stored before, whatever compilers know of the loop over threads."""

import numpy as np
import pytest
from slices import usual

import hal_core as hal

# Kernels whose thread i stores to y[2 i] and y[2 i + 1] only and sees its own earlier stores;
# p[i] is 2 i, which no compiler knows.


@hal.kernel
def through_memory(
    y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], p: hal.ConstPtr[hal.int32]
):
    i = hal.global_idx(0)
    y[2 * i] = x[i]
    t = y[p[i]]
    y[2 * i + 1] = t + 1


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
def test_P8_a_thread_sees_its_own_earlier_stores(compiler, kernel, even, odd, monkeypatch):
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

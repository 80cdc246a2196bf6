"""When threads may be interleaved access by access."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hal_core as hal
from hal_core.ir.independence import stores_last


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


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [(one_store, True), (loads_in_a_loop, True), (store_in_a_loop, False), (two_stores, False),
     (through_memory, False)],
    ids=lambda value: getattr(value, "name", str(value)),
)  # fmt: skip
def test_stores_last(kernel: Any, expected: bool) -> None:
    assert stores_last(kernel.lower()) is expected


@pytest.mark.parametrize("compiler", ["llvm", "gcc", "clang"])
def test_P8_a_thread_sees_its_own_earlier_store(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gcc reordered the two when it was told that the loop has no dependences at all."""
    pytest.importorskip("hal_cpu", reason="hal-cpu is not installed here")
    monkeypatch.setenv("CPU_CC", compiler)
    device, count = hal.Device["CPU"], 1024
    x = np.arange(count, dtype="f4") % 13
    y = hal.zeros(2 * count, hal.float32, device)
    where = hal.Buffer.from_numpy(2 * np.arange(count, dtype="i4"), device)
    try:
        program = device.compile(through_memory)
    except hal.CompilerUnavailable as error:
        pytest.skip(str(error))
    program(y, hal.Buffer.from_numpy(x, device), where, threads=count)
    assert np.array_equal(y.numpy()[1::2], x + 1)

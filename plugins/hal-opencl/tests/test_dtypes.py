"""C9, D1: dtypes that the device claims to support are compiled and run; others are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hal_core as hal
from hal_core.dtypes import DTYPES, STORAGE_DTYPES
from hal_kernel.interpreter import interpret

ARITHMETIC = [DTYPES[name] for name in DTYPES if DTYPES[name] not in STORAGE_DTYPES]
N = 12


def numbers(dtype: Any) -> np.ndarray[Any, Any]:
    if dtype.kind == "b":
        return np.arange(N) % 3 > 0
    values = [0, 1, 2, 3, 7, 100, 5, 9, 31, 64, dtype.max, dtype.min][:N]
    return np.array(values, object).astype(dtype.to_numpy())


def run(kernel: hal.KernelFunction, device: hal.Compiled, *arrays: Any, vals: Any = ()) -> None:
    """Run a kernel on the device and in the interpreter, which agree on every element."""
    expected = [array.copy() for array in arrays]
    with np.errstate(all="ignore"):
        interpret(kernel, *expected, vals=vals, threads=N, block=N)
    buffers = [hal.Buffer.from_numpy(array, device=device) for array in arrays]
    device.compile(kernel)(*buffers, vals=vals, threads=N, block=N)
    for buffer, wanted in zip(buffers, expected, strict=True):
        got = buffer.numpy()
        bits = f"u{got.dtype.itemsize}"
        assert got.dtype == wanted.dtype
        assert got.view(bits).tolist() == wanted.view(bits).tolist()


def needs(device: hal.Compiled, dtype: Any, kernel: hal.KernelFunction) -> None:
    """D1: a dtype that is not supported is refused by name."""
    if not device.supports(dtype):
        with pytest.raises(hal.Unsupported, match=dtype.name):
            device.compile(kernel)
        pytest.skip(f"the device has no {dtype.name}")


@pytest.mark.parametrize("dtype", ARITHMETIC)
def test_C9_load_compute_and_store(device: hal.Compiled, dtype: Any) -> None:
    if dtype.kind == "b":

        @hal.kernel
        def compute(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype], a: dtype):
            i = hal.global_idx(0)
            y[i] = x[i] ^ a
    else:

        @hal.kernel(contract=False)
        def compute(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype], a: dtype):
            i = hal.global_idx(0)
            y[i] = x[i] * a + min(x[i], a) - a

    needs(device, dtype, compute)
    x = numbers(dtype)
    run(compute, device, np.zeros_like(x), x, vals=(x[3],))


@pytest.mark.parametrize("dtype", sorted(STORAGE_DTYPES, key=str))
def test_C9_sixteen_bit_floats_are_stored_and_computed_in_float32(
    device: hal.Compiled, dtype: Any
) -> None:
    @hal.kernel(contract=False)
    def scale(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype], a: hal.float32):
        i = hal.global_idx(0)
        tile = hal.shared(dtype, N)
        tile[i] = x[i] * a
        y[i] = tile[i] + x[i]

    assert device.supports(dtype)
    if dtype.name == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="numpy has no bfloat16 of its own")
    x = np.array([0, 1, -2.5, 1e-7, 6e4, -6e4, np.inf, -np.inf, 0.1, 1e-3, 3, 1 / 3])
    run(scale, device, np.zeros(N, dtype.to_numpy()), x.astype(dtype.to_numpy()), vals=(1.0 / 3,))


@pytest.mark.parametrize("name", ["int32", "uint32", "int64", "uint64"])
def test_C9_integer_atomics_in_buffers_and_in_shared_memory(
    device: hal.Compiled, name: str
) -> None:
    dtype: Any = DTYPES[name]

    @hal.kernel(block=(N, 1, 1))
    def gather(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype]):
        i = hal.global_idx(0)
        tile = hal.shared(dtype, 4)
        if i < 4:
            tile[i] = x[0]
        hal.barrier()
        hal.atomic_add(tile, 0, x[i])
        hal.atomic_min(tile, 1, x[i])
        hal.atomic_max(tile, 2, x[i])
        hal.atomic_add(y, 4, x[i])
        hal.atomic_min(y, 5, x[i])
        hal.atomic_max(y, 6, x[i])
        if i == 0:
            hal.atomic_exchange(y, 7, x[5])
            hal.atomic_compare_exchange(y, 8, x[0], x[6])
        hal.barrier()
        if i < 4:
            y[i] = tile[i]

    if dtype.itemsize == 8 and "int64_atomics" not in device.info.capabilities:
        with pytest.raises(hal.Unsupported, match="int64_atomics"):
            device.compile(gather)
        return
    x = numbers(dtype)
    run(gather, device, np.zeros_like(x), x)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_C9_float_atomics(device: hal.Compiled, name: str) -> None:
    dtype: Any = DTYPES[name]

    @hal.kernel(block=(N, 1, 1))
    def total(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype]):
        i = hal.global_idx(0)
        tile = hal.shared(dtype, 1)
        if i == 0:
            tile[0] = 0.0
            hal.atomic_exchange(y, 2, x[1])
        hal.barrier()
        hal.atomic_add(tile, 0, x[i])
        hal.atomic_add(y, 1, x[i])
        hal.barrier()
        if i == 0:
            y[0] = tile[0]

    needs(device, dtype, total)
    x = np.arange(N).astype(dtype.to_numpy())  # whose sum is exact in any order
    run(total, device, np.zeros_like(x), x)


def test_a_source_kernel_takes_pointers_without_a_dtype(device: hal.Compiled) -> None:
    """The signature says `any*`, and the text whatever it takes the memory for."""
    text = """__kernel void copied(__global float *y, __global const float *x, int n) {
        int i = get_global_id(0);
        if (i < n) y[i] = x[i];
    }"""
    source = hal.Source("copied", text, "y: any*, x: const any*, n: int32", language="opencl")
    x = np.arange(4, dtype="f4")
    given = hal.Buffer.from_numpy(x.view("u1"), device=device)
    made = hal.zeros(2, hal.uint64, device)
    device.compile(source)(made, given, vals=(4,), threads=4)
    assert made.numpy().view("f4").tolist() == x.tolist()

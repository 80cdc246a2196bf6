"""Kernels that came out wrong on PoCL 3.1, whose faults the rendered text avoids."""

import math

import numpy as np
import pytest

import hal_core as hal
from hal_kernel.interpreter import interpret


@hal.kernel
def three_views(
    f: hal.Ptr[hal.float32], k: hal.Ptr[hal.int32], h: hal.Ptr[hal.int16], n: hal.int32
):
    i = hal.global_idx(0)
    if i < n:
        f[i] = 1.5
        k[i] = k[i] + 1
        h[2 * i] = h[2 * i] + hal.int16(3)
        f[i] = f[i] * 2.0


def test_views_of_one_buffer_may_have_several_dtypes(device):
    n = 64
    buffer = hal.zeros(n, hal.float32, device)
    views = buffer.view(n, hal.int32), buffer.view(2 * n, hal.int16)
    device.compile(three_views)(buffer, *views, vals=(n,), threads=n)
    expected = np.full(n, 1.5, "f4")
    expected.view("i4")[:] += 1
    expected.view("i2")[::2] += 3
    assert (buffer.numpy() == expected * 2).all()


def test_only_pointers_that_may_meet_are_declared_so(device):
    def text(signature):
        kernel = hal.Kernel("k", hal.Signature.parse("k", signature), ())
        return device.compile(kernel).source

    assert "may_alias" not in text("y: float32*, x: const float32*, n: int32, f: float64")
    assert "may_alias" not in text("y: const float32*, x: const int32*")
    assert "may_alias" not in text("y: uint8*, x: const int32*, z: int8*, w: uint32*")
    both = text("y: uint8*, x: const int32*, z: const float32*")
    assert both.count("may_alias") == 2
    for name in ("int", "float"):
        assert f"typedef {name} hal_any_{name} __attribute__((may_alias));" in both


@hal.kernel
def whole(y: hal.Ptr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    large = 1e30 if (n | 1) != 0 else 0.0  # it is, and an optimiser may know
    y[4 * i] = 1 if large == round(large) else 2
    y[4 * i + 1] = 1 if large == hal.floor(large) else 2
    y[4 * i + 2] = 1 if large == hal.ceil(large) else 2
    wide = hal.float64(large)
    y[4 * i + 3] = 1 if wide == round(wide) and wide == hal.trunc(wide) else 2


def test_numbers_that_no_int_holds_are_rounded_while_compiling(device):
    y = hal.zeros(16, hal.int32, device)
    device.compile(whole)(y, vals=(4,), threads=4)
    assert y.numpy().tolist() == [1] * 16


@hal.kernel(block=(3, 1, 1))
def some_return_behind_a_barrier(y: hal.Ptr[hal.int32]):
    i = hal.global_idx(0)
    if hal.block_idx(0) == 0:
        for _ in range(1):
            hal.barrier()
        if hal.thread_idx(0) >= 2:
            return
    y[i] = y[i] * 6 + 1


def test_threads_may_return_behind_a_barrier_in_a_branch(device):
    y = hal.Buffer.from_numpy(np.arange(6, dtype="i4"), device=device)
    device.compile(some_return_behind_a_barrier)(y, grid=2)
    assert y.numpy().tolist() == [1, 7, 2, 19, 25, 31]


@hal.kernel
def load_between(y: hal.Ptr[hal.int32], p: hal.ConstPtr[hal.int32], o: hal.Ptr[hal.int32]):
    i = hal.global_idx(0)
    y[2 * i] = i
    o[i] = y[p[i]]
    y[2 * i + 1] = i + 1


@hal.kernel
def store_between(y: hal.Ptr[hal.int32], p: hal.ConstPtr[hal.int32], o: hal.Ptr[hal.int32]):
    i = hal.global_idx(0)
    before = y[2 * i]
    y[p[i] + 1] = i
    o[i] = before * 3 + y[2 * i + 1]


@hal.kernel
def store_twice(y: hal.Ptr[hal.int32], p: hal.ConstPtr[hal.int32], o: hal.Ptr[hal.int32]):
    i = hal.global_idx(0)
    y[2 * i] = i
    y[p[i]] = -i
    y[2 * i + 1] = i + 1
    o[i] = 5


@pytest.mark.parametrize("kernel", [load_between, store_between, store_twice])
def test_a_threads_own_accesses_keep_their_order(device, kernel):
    n = 64
    arrays = [np.arange(2 * n, dtype="i4"), np.arange(0, 2 * n, 2, dtype="i4"), np.zeros(n, "i4")]
    buffers = [hal.Buffer.from_numpy(array, device=device) for array in arrays]
    device.compile(kernel)(*buffers, threads=n, block=n)
    interpret(kernel, *arrays, threads=n, block=n)
    for buffer, array in zip(buffers, arrays, strict=True):
        assert buffer.numpy().tolist() == array.tolist()


@pytest.mark.parametrize(
    ("dtype", "word"), [(hal.float32, hal.uint32), (hal.float64, hal.uint64)], ids=str
)
def test_bits_of_what_is_loaded_as_a_float_under_a_mask(device, dtype, word):
    """LLVM 15 ended the process on a machine with AVX-512."""
    sign = 1 << (8 * dtype.itemsize - 1)

    @hal.kernel
    def signs(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype], n: hal.int32):
        i = hal.global_idx(0)
        if i < n:
            y[6 * i] = x[i]
            y[6 * i + 1] = abs(x[i])
            y[6 * i + 2] = hal.bitcast(dtype, hal.bitcast(word, x[i]) & (sign - 1))
            y[6 * i + 3] = hal.bitcast(dtype, hal.bitcast(word, x[i]) | sign)
            y[6 * i + 4] = hal.bitcast(dtype, hal.bitcast(word, x[i]) ^ sign)
            y[6 * i + 5] = hal.bitcast(dtype, hal.bitcast(word, x[i]) << 1)

    x = np.array([-1.5, -0.0, -math.inf, math.nan, 2.0, 0.0, 1e-40, -3.0, -4.0], dtype.to_numpy())
    y = hal.zeros(6 * x.size, dtype, device)
    program = device.compile(signs)
    program(y, hal.Buffer.from_numpy(x, device), vals=(x.size,), threads=x.size)
    found = y.numpy().view(word.to_numpy()).reshape(-1, 6).tolist()
    for bits, row in zip(x.view(word.to_numpy()).tolist(), found, strict=True):
        clear = bits & (sign - 1)
        assert row == [bits, clear, clear, bits | sign, bits ^ sign, 2 * clear]
    if device.info.vendor["platform"] == "Portable Computing Language":
        assert program.source is not None
        assert "__builtin_assume" in program.source  # seen without AVX-512, too


FUNCTIONS = [hal.exp, hal.exp2, hal.tanh, hal.sin, hal.log, hal.atan]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_functions_of_a_constant_nan(device, function):
    @hal.kernel
    def compare(y: hal.Ptr[hal.int32], n: hal.int32):
        i = hal.global_idx(0)
        y[i] = 1
        never = math.nan if (n | 1) != 0 else 0.0  # it is, and an optimiser may know
        if function(never) > 3.0:
            y[i] = 2

    y = hal.zeros(4, hal.int32, device)
    device.compile(compare)(y, vals=(4,), threads=4)
    assert y.numpy().tolist() == [1] * 4

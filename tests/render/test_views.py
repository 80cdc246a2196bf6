"""Memory seen as elements of another dtype, and 16-bit floats as their bits."""

from __future__ import annotations

import numpy as np
import pytest
from builder import Builder
from toolchains import Toolchain

import hal_core as hal
from hal_core.dtypes import DTYPES, DType, bool_, float32, float64, int32
from hal_kernel.ir import UOp

RAW = np.random.default_rng(3).integers(0, 256, 64).astype(np.uint8)
SIZED = [dtype for dtype in DTYPES.values() if dtype is not bool_]


def view(b: Builder, where: str | UOp, dtype: DType) -> UOp:
    return b.add("VIEW", dtype, b.memory(where))


@pytest.mark.parametrize("source", SIZED, ids=str)
def test_a_parameter_seen_as_every_dtype(toolchain: Toolchain, source: DType) -> None:
    """Each thread copies one element of each dtype, through a view of both sides."""
    targets = [dtype for dtype in DTYPES.values() if dtype not in (source, bool_)]
    outputs = ", ".join(f"r_{dtype.name}: {source.name}*" for dtype in targets)
    b = Builder("views", f"{outputs}, x: const {source.name}*")
    i = b.index()
    for dtype in targets:
        with b.when(b.op("LT", i, b.const(64 // dtype.itemsize))):
            value = b.load(view(b, "x", dtype), i)
            b.store(view(b, f"r_{dtype.name}", dtype), i, value)
    kind = source.to_numpy()
    got = {f"r_{dtype.name}": np.zeros(64, np.uint8).view(kind) for dtype in targets}
    toolchain.run(b.kernel(), {**got, "x": RAW.view(kind)}, (4, 1, 1), (16, 1, 1))
    for name, array in got.items():
        np.testing.assert_array_equal(array.view(np.uint8), RAW, err_msg=name)


def test_any_byte_but_zero_is_true(toolchain: Toolchain) -> None:
    b = Builder("truths", "r: bool*, x: const uint8*")
    i = b.index()
    b.store("r", i, b.load(view(b, "x", bool_), i))
    got = np.zeros(4, bool)
    toolchain.run(b.kernel(), {"r": got, "x": np.array([0, 1, 2, 128], "u1")}, (4, 1, 1))
    assert got.tolist() == [False, True, True, True]


def test_a_value_written_through_one_dtype_is_read_through_another(toolchain: Toolchain) -> None:
    """A compiler may not take float and int for different memory."""
    b = Builder("through", "y: float32*, r: float32*")
    i = b.index()
    bits, whole = view(b, "y", int32), b.load("y", i)
    b.store(bits, i, b.op("XOR", b.load(bits, i), b.const(int(int32.min))))
    negative = b.load("y", i)
    b.store("y", i, b.op("ADD", negative, whole))
    b.store("r", i, b.cast(b.load(bits, i), float32))
    y, r = np.arange(1, 9, dtype="f4"), np.ones(8, "f4")
    toolchain.run(b.kernel(), {"y": y, "r": r}, (2, 1, 1), (4, 1, 1))
    assert y.tolist() == r.tolist() == [0] * 8


@pytest.mark.parametrize("dtype", [int32, float64, DTYPES["float16"]], ids=str)
def test_a_shared_array_seen_as_another_dtype(toolchain: Toolchain, dtype: DType) -> None:
    """The array is of bytes, and begins where any element may."""
    b = Builder("tiles", f"r: {dtype.name}*, x: const uint8*")
    i, t = b.index(), b.special("thread_idx")
    b.shared("odd", 3, DTYPES["uint8"])
    tile = b.shared("tile", 32, DTYPES["uint8"])
    b.store(tile, t, b.load("x", i))
    b.barrier()
    count = 32 // dtype.itemsize
    with b.when(b.op("LT", t, b.const(count))):
        place = b.op("ADD", b.op("MUL", b.special("block_idx"), b.const(count)), t)
        b.store("r", place, b.load(view(b, tile, dtype), t))
    got = np.zeros(64 // dtype.itemsize, dtype.to_numpy())
    toolchain.run(b.kernel(block=(32, 1, 1)), {"r": got, "x": RAW}, (2, 1, 1), (32, 1, 1))
    np.testing.assert_array_equal(got.view(np.uint8), RAW)


@pytest.mark.parametrize("where", ["PARAM", "SHARED"])
def test_atomics_of_a_view(toolchain: Toolchain, where: str) -> None:
    """The bits of floats that are not negative have the order of the floats."""
    b = Builder("largest", "y: float32*, x: const float32*")
    t = b.special("thread_idx")
    memory = b.memory("y") if where == "PARAM" else b.shared("best", 1, float32)
    zero = b.const(0)
    with b.when(b.op("EQ", t, zero)):
        b.store(memory, zero, b.const(0, float32))
    b.barrier()
    bits = b.bitcast(b.load("x", t), int32)
    b.atomic("MAX", b.add("VIEW", int32, memory), zero, bits)
    b.barrier()
    with b.when(b.op("EQ", t, zero)):
        b.store("y", zero, b.load(memory, zero))
    y, x = np.ones(1, "f4"), np.array([0.5, 3.25, 1.0, 3.0], "f4")
    toolchain.run(b.kernel(), {"y": y, "x": x}, (1, 1, 1), (4, 1, 1))
    assert y.tolist() == [3.25]


@hal.kernel
def halves(
    y: hal.Ptr[hal.uint16], z: hal.Ptr[hal.float32], h: hal.Ptr[hal.float16],
    b: hal.ConstPtr[hal.bfloat16], n: hal.int32,
) -> None:  # fmt: skip
    i = hal.global_idx(0)
    if i < n:
        y[i] = hal.bitcast(hal.uint16, h[i])
        z[i] = hal.bitcast(hal.bfloat16, hal.bitcast(hal.int16, b[i]))
        negative = hal.bitcast(hal.uint16, hal.float16(z[i])) ^ 0x8000
        h[i] = hal.bitcast(hal.float16, negative)


def test_bits_of_16_bit_floats_in_the_language(toolchain: Toolchain) -> None:
    every = np.arange(65536, dtype=np.uint16)
    y, z, h = np.zeros_like(every), np.zeros(65536, np.float32), every.view(np.float16).copy()
    given = {"y": y, "z": z, "h": h.view(np.uint16), "b": every, "n": 65536}
    toolchain.run(halves.lower(), given, (256, 1, 1), (256, 1, 1))
    np.testing.assert_array_equal(y, every)
    wide = (every.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(z, wide)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(given["h"].view(np.float16), -wide.astype(np.float16))


@hal.kernel
def untyped(y: hal.Ptr[hal.any_], x: hal.ConstPtr[hal.any_], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        total = hal.float32(hal.bitcast(hal.int16, x)[i]) + hal.bitcast(hal.float32, y)[i]
        hal.bitcast(hal.float32, y)[i] = total
        hal.atomic_add(hal.bitcast(hal.int32, y), n, 1)


def test_parameters_without_a_dtype(toolchain: Toolchain) -> None:
    y = np.array([0.5] * 8 + [0], np.float32)
    given = {"y": y.view(np.uint8), "x": np.arange(-4, 4, dtype="i2").view(np.uint8), "n": 8}
    toolchain.run(untyped.lower(), given, (2, 1, 1), (8, 1, 1))
    assert y[:8].tolist() == [k + 0.5 for k in range(-4, 4)] and y.view("i4")[8] == 8

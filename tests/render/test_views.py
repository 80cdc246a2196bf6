"""Memory seen as elements of another dtype, and 16-bit floats as their bits."""

import numpy as np
import pytest
from builder import Builder
from slices import usual

from hal_core.dtypes import DTYPES, bool_, float32, float64, int32

RAW = np.random.default_rng(3).integers(0, 256, 64).astype(np.uint8)
SIZED = [dtype for dtype in DTYPES.values() if dtype is not bool_]


def view(b, where, dtype):
    return b.add("VIEW", dtype, b.memory(where))


@pytest.mark.parametrize("source", usual(SIZED, "uint8", "bfloat16", "float32", "int64"), ids=str)
def test_a_parameter_seen_as_every_dtype(toolchain, source):
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


def test_any_byte_but_zero_is_true(toolchain):
    b = Builder("truths", "r: bool*, x: const uint8*")
    i = b.index()
    b.store("r", i, b.load(view(b, "x", bool_), i))
    got = np.zeros(4, bool)
    toolchain.run(b.kernel(), {"r": got, "x": np.array([0, 1, 2, 128], "u1")}, (4, 1, 1))
    assert got.tolist() == [False, True, True, True]


def test_a_value_written_through_one_dtype_is_read_through_another(toolchain):
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
def test_a_shared_array_seen_as_another_dtype(toolchain, dtype):
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

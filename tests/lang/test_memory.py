"""Shared arrays, barriers and atomics, as the IR shows them."""

import math
from functools import partial

import kernel_files
import numpy as np
import pytest
from kernel_files import IMPORTS, load

import hal_core as hal
from hal_core.dtypes import DTYPES
from hal_kernel.interpreter import interpret
from hal_kernel.ir.uop import ATOMIC_OPS

HEAD = (
    IMPORTS
    + """
SIZE = 4
SHAPE = (2, 3, SIZE)

@hal.kernel(block=(16, 4))
def f(
    y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.float32], z: hal.Ptr[hal.float32],
    b: hal.Ptr[hal.uint8], d: hal.Ptr[hal.uint64], n: hal.int32, m: hal.int64,
):
    i = hal.thread_idx(0)
    j = hal.thread_idx(1)
"""
)


lowered = partial(kernel_files.lowered, HEAD)


# -- shared arrays


@pytest.mark.parametrize(
    ("shape", "count"),
    [("7", 7), ("(7,)", 7), ("(2, 3)", 6), ("(SIZE, SIZE + 1)", 20), ("SHAPE", 24), ("SIZE", 4)],
)
def test_an_array_is_flat_in_the_ir(shape, count, tmp_path):
    kernel = lowered(f"tile = hal.shared(hal.float32, {shape})", tmp_path)
    (array,) = (node for node in kernel.uops if node.op == "SHARED")
    assert array.arg == ("tile", count) and array.dtype is hal.float32


def test_each_axis_is_left_to_checked_mode(tmp_path):
    """One index of an array is tested at the access, several would hide each other's mistakes."""
    flat = lowered("t = hal.shared(hal.int32, 9)\nt[i] = 0", tmp_path)
    assert not [node for node in flat.uops if node.op == "ASSERT"]
    kernel = lowered("t = hal.shared(hal.int32, (3, 4))\nt[i, 3] = 0", tmp_path)
    (test,) = (node for node in kernel.uops if node.op == "ASSERT")
    assert test.arg == "along axis 0 of 't'" and test.src[1].arg == 3


@pytest.mark.parametrize("dtype", list(DTYPES.values()))
def test_arrays_of_every_dtype(dtype, tmp_path):
    kernel = lowered(f"tile = hal.shared(hal.{dtype.__name__}, 3)\ntile[0] = 1", tmp_path)
    (array,) = (node for node in kernel.uops if node.op == "SHARED")
    assert array.dtype is dtype
    assert kernel.shared_nbytes == 16 if dtype.itemsize < 8 else 32


# -- barriers and the block


def test_a_fixed_block_is_a_constant(tmp_path):
    body = "y[0] = hal.block_dim(0)\ny[1] = hal.block_dim(1)\ny[2] = hal.block_dim(2)"
    kernel = lowered(body, tmp_path)
    stored = [node.src[2] for node in kernel.uops if node.op == "STORE"]
    assert [(node.op, node.dtype, node.arg) for node in stored] == [
        ("CONST", hal.int32, size) for size in (16, 4, 1)
    ]


# -- atomics


@pytest.mark.parametrize(("order", "arg"), [("", "relaxed"), (", hal.release", "release")])
def test_an_atomic_store_is_a_statement(order, arg, tmp_path):
    """Its value becomes the element's dtype; an order is its own, and no fence beside it."""
    kernel = lowered(f"hal.atomic_store(z, m, 2{order})", tmp_path)
    (node,) = (node for node in kernel.uops if node.op in {*ATOMIC_OPS, "STORE", "FENCE"})
    assert (node.op, node.arg, node.dtype) == ("ATOMICSTORE", arg, None)
    assert node.src[2].dtype is hal.float32


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_atomic_load_of_a_float_changes_no_bit(value, dtype, tmp_path):
    text = f"""
@hal.kernel
def f(y: hal.Ptr[hal.{dtype}]) -> None:
    y[1] = hal.atomic_load(y, 0)
"""
    y = np.array([value, 7], dtype)
    before = y[0].tobytes()
    interpret(load(tmp_path, IMPORTS + text).f, y, threads=1)
    assert y[0].tobytes() == y[1].tobytes() == before


def test_an_atomic_is_not_executed_where_python_would_not(tmp_path):
    body = "v = i < n and hal.atomic_add(y, 0, 1) > 3\nw = hal.atomic_add(y, 1, 1) if v else 0"
    ops = [node.op for node in lowered(body, tmp_path).uops]
    assert ops.count("IF") == ops.count("ATOMIC") == 2


BAD = [
    # shared arrays
    ("if n > 0:\n    tile = hal.shared(hal.int32, 3)", "hal.shared", "top level", "Move tile = "),
    ("tile = 0\ntile = hal.shared(hal.int32, 3)", "tile = hal", "assigned elsewhere", "its own"),
    ("y[0] = hal.shared(hal.int32, 3)", "hal.shared", "declares an array", "a line of its own"),
    ("hal.shared(hal.int32, 3)", "hal.shared", "declares an array", "Write tile = hal.shared"),
    ("tile = hal.shared(3, hal.int32)", "3", "comes first", "tile = hal.shared(hal.int32, 3)."),
    ("tile = hal.shared(hal.int32)", "hal.shared", "a dtype and a shape", "(16, 16)"),
    ("tile = hal.shared(float, 3)", "float", "float is not the dtype", "hal.float32"),
    ("tile = hal.shared(hal.int32, n)", "n", "known at compile time", "Capture"),
    ("tile = hal.shared(hal.int32, 0)", "0", "one to four positive ints", "(16, 16)"),
    ("tile = hal.shared(hal.int32, ())", "()", "one to four positive ints", "(16, 16)"),
    ("tile = hal.shared(hal.int32, (1, 2, 3, 4, 5))", "(1", "one to four", "(16, 16)"),
    ("tile = hal.shared(hal.int32, (2**20, 2**20))", "(2**20", "elements", "smaller"),
    ("tile = hal.shared(hal.int32, 3)\nv = tile", "tile", "the array 'tile' is not a", "tile[i]"),
    ("tile = hal.shared(hal.int32, 3)\ntile[3] = 1", "3]", "the index 3 is outside", "index is 2"),
    ("t = hal.shared(hal.int32, (3, 4))\nt[i] = 1", "t[i]", "takes both indices", "Write t[i, j]"),
    ("t = hal.shared(hal.int32, 12)\nt[i, j] = 1", "t[i", "takes one index, not 2", "Write t[i]"),
    ("t = hal.shared(hal.int32, (1, 2, 3))\nt[i, j] = 1", "t[i", "three indices", "t[i, j, k]"),
    ("t = hal.shared(hal.int32, (3, 4))\nt[i, 4] = 1", "4]", "index 4 is outside", "index is 3"),
    ("t = hal.shared(hal.int32, (3, 4))\nt[3, j] = 1", "3, j", "the index 3 is", "index is 2"),
    ("t = hal.shared(hal.int32, (3, 4))\nt[i, m] = 1", "t[i, m]", "int32 and int64", "hal.int64"),
    ("t = hal.shared(hal.int32, (3, 4))\nt[i][j] = 1", "t[i]", "both indices", "Write t[i, j]"),
    # barriers
    ("hal.barrier(1)", "hal.barrier", "takes 0 argument", "Write hal.barrier()"),
    ("v = hal.barrier()", "hal.barrier", "gives no value", "a line of its own"),
    # atomics
    ("hal.atomic_add(y[i], 1)", "hal.atomic_add", "takes 3 arg", "hal.atomic_add(p, i, value)"),
    ("hal.atomic_compare_exchange(y, i, 1)", "hal.atomic", "takes 4", "(p, i, expected, desired)"),
    ("hal.atomic_load(y, i, hal.release)", "hal.release", "writes nothing, and", "hal.acquire, or"),
    ("hal.atomic_load(y, i, hal.acq_rel)", "hal.acq_rel", "no order acq_rel", "hal.acquire, or"),
    ("hal.atomic_load(y, i, 0)", "0", "0 is not an order", "Write hal.acquire, or leave it out."),
    ("hal.atomic_store(y, i, 1, hal.acquire)", "hal.acq", "reads nothing", "hal.release, or leave"),
    ("hal.atomic_add(x, i, 1.0)", "hal.atomic_add", "'x' is only read", "x: hal.Ptr[hal.float32]"),
    ("hal.atomic_add(n, i, 1)", "hal.atomic_add", "only pointers", "n: hal.Ptr[hal.int32]"),
    ("hal.atomic_add(b, i, 1)", "b", "32 and 64 bits, not uint8", "hal.Ptr[hal.int32]"),
    ("hal.atomic_max(z, i, 1.0)", "z", "atomic_max does not take float32", "hal.bitcast"),
    ("hal.atomic_compare_exchange(z, i, 1.0, 2.0)", "z", "does not take float32", "Ptr[hal.int32]"),
    ("hal.atomic_add(y, i, 0.5)", "0.5", "the float 0.5 is used with int32", "whole number"),
    ("hal.atomic_add(y, (i, j), 1)", "hal.atomic_add", "one number", "y[row * width + column]"),
]  # fmt: skip


test_refused_with_place_and_advice = kernel_files.refused(HEAD, BAD)

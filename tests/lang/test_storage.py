"""16-bit floats in memory, bits as numbers, and asserts."""

import math
from functools import partial

import kernel_files
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_files import IMPORTS

import hal_core as hal
from hal_kernel.interpreter import interpret

HEAD = (
    IMPORTS
    + """
@hal.kernel
def f(
    h: hal.Ptr[hal.float16], b: hal.ConstPtr[hal.bfloat16], y: hal.Ptr[hal.float32],
    k: hal.Ptr[hal.int32], a: hal.float32, n: hal.int32,
):
    i = hal.global_idx(0)
"""
)


lowered = partial(kernel_files.lowered, HEAD)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("hal.float16(1 + 2**-11 + 2**-40)", 1 + 2**-10),
     ("hal.bfloat16(-(1 + 2**-8 + 2**-40))", -(1 + 2**-7)),
     ("hal.bfloat16(2**24 + 2**16 + 1)", 2**24 + 2**17), ("hal.bfloat16(1 + 2**-8 - 2**-40)", 1),
     ("hal.bfloat16(2**-133 * 1.5 - 2**-180)", 2**-133), ("hal.float16(math.inf)", math.inf)],
)  # fmt: skip
def test_a_number_is_rounded_once(text, expected, tmp_path):
    (number,) = [node.arg for node in lowered(f"y[i] = {text}", tmp_path).uops[7:-1]]
    assert number == expected


def make_total(dtype):
    @hal.kernel
    def total(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype], n: hal.int32) -> None:
        tile = hal.shared(dtype, 4)
        acc = dtype(0)
        for k in range(n):
            acc += x[k]
        tile[0] = acc
        y[0] = min(tile[0], dtype.max)

    return total


@pytest.mark.parametrize(
    ("dtype", "element"), [(hal.float16, np.float16), (hal.bfloat16, ml_dtypes.bfloat16)]
)
@given(values=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=8))
def test_one_definition_makes_kernels_of_every_dtype(dtype, element, values):
    x = np.array(values, dtype="f4").astype(element)
    y = np.zeros(1, dtype=element)
    interpret(make_total(dtype), y, x, vals=(len(x),), threads=1)
    expected = np.float32(0)
    for value in x:
        expected += np.float32(value)
    assert y[0] == expected.astype(element)


def test_bits_are_numbers(tmp_path):
    body = "k[i] = hal.bitcast(hal.int32, a)\ny[i] = hal.bitcast(hal.float32, k[i] + 1)\n"
    body += "k[i] = hal.bitcast(hal.int32, n) + hal.bitcast(hal.int32, 1.0)"
    body += "\nk[i] += hal.int32(hal.bitcast(hal.uint16, hal.float16(1.5))) << 16"
    kernel = lowered(body, tmp_path)
    assert [node.op for node in kernel.uops].count("BITCAST") == 4
    y, k = np.zeros(1, dtype="f4"), np.zeros(1, dtype="i4")
    empty = np.zeros(0, dtype="f2")
    interpret(kernel, empty, empty.astype(ml_dtypes.bfloat16), y, k, vals=(1.5, 7), threads=1)
    assert y[0] == np.nextafter(np.float32(1.5), np.float32(2))
    assert k[0] == 0x3F800000 + 7 + (0x3E00 << 16)


# -- assert


def messages(kernel):
    return [node.arg for node in kernel.uops if node.op == "ASSERT"]


def test_an_assert_is_a_node_with_its_text(tmp_path):
    kernel = lowered("assert 0 <= i  and i < n\nassert n > 0, 'some'", tmp_path)
    assert messages(kernel) == ["0 <= i and i < n", "some"]


def test_an_assert_of_constants_is_checked_at_once(tmp_path):
    assert messages(lowered("assert 1 < 2\nassert True, 'never'", tmp_path)) == []
    with pytest.raises(hal.KernelSyntaxError, match="this does not hold: odd"):
        lowered("assert 3 % 2 == 0, 'odd'", tmp_path)


def test_an_assert_where_no_thread_should_come(tmp_path):
    kernel = lowered("if n > 0:\n    y[i] = 1\nelse:\n    assert False, 'n is positive'", tmp_path)
    assert messages(kernel) == ["n is positive"]

"""Captured tuples and numpy arrays that a kernel indexes at run time."""

from functools import partial

import kernel_files
import ml_dtypes
import numpy as np
import pytest
from kernel_files import IMPORTS

import hal_core as hal
from hal_core.dtypes import DTYPES, float32
from hal_core.signature import Signature
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.fold import fold
from hal_kernel.ir.verify import verify

WEIGHTS = (0.25, 0.5, 0.25)
GRID = ((1, 2, 3), (4, 5, 6))
DOUBLES = np.array([[1.5, 2.5], [3.5, 0.1]])


@hal.func
def pick(p: hal.ConstPtr[hal.float32], i: hal.int32) -> hal.float32:
    return p[i]


@hal.kernel
def every_use(y: hal.Ptr[hal.float64], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i >= n:
        return
    total = hal.float64(0)
    for j in range(3):
        total += hal.float64(WEIGHTS[j] + pick(WEIGHTS, j))
    for j in hal.unroll(len(WEIGHTS)):
        total += WEIGHTS[j]
    row = GRID[i % 2]
    total += hal.float64(row[i % 3] + GRID[1][i % 3] + GRID[i % 2, 2] + GRID[-1][-1])
    total += hal.float64(hal.load_if(i < 3, WEIGHTS, i, 0))
    y[i] = total + DOUBLES[i % 2][1] + DOUBLES[0, i % 2] + hal.view(DOUBLES, 4)[3]


def test_every_use():
    y = np.zeros(7, "f8")
    interpret(every_use, y, vals=(7,), threads=7)
    for i in range(7):
        whole = GRID[i % 2][i % 3] + GRID[1][i % 3] + GRID[i % 2][2] + 6
        gated = WEIGHTS[i] if i < 3 else 0
        assert y[i] == 3 + whole + gated + DOUBLES[i % 2, 1] + DOUBLES[0, i % 2] + 0.1


def test_a_table_is_declared_once():
    tables = [node for node in every_use.lower().uops if node.op == "TABLE"]
    found = [(node.arg[0], node.dtype) for node in tables]
    names = ("WEIGHTS", hal.float32), ("GRID", hal.int32), ("table", hal.int32)
    assert found == [*names, ("DOUBLES", hal.float64)]
    assert tables[0].arg[1] == WEIGHTS


HEAD = (
    IMPORTS
    + """
import ml_dtypes
import numpy as np

W = (1, 2, 3)
INF = (0.0, math.inf)
HUGE = (1e300, 2.0)
RAGGED = ((1, 2), (3,))
WORDS = ("a", "b")
MIXED = (1, np.int64(2), np.float32(3))
WHOLE = (np.int64(1), 0.5)
LARGE = np.zeros(20000)
HALF = np.zeros((100, 100), "f4")
COMPLEX = np.zeros(3, "c8")
EMPTY = np.zeros((0, 3))
NONE, DEEP = (), np.zeros((1, 1, 1, 1, 1))

@hal.kernel
def f(y: hal.Ptr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
"""
)


lowered = partial(kernel_files.function, HEAD)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_arrays_of_every_dtype(dtype, tmp_path):
    """An array of 16-bit floats is one of float32, which holds each of them."""
    module = "ml_dtypes" if dtype.name == "bfloat16" else "np"
    head = HEAD.replace("LARGE", f"A = np.array([1, 0, 1]).astype({module}.{dtype.name})\nLARGE", 1)
    head = head.replace("np.bool)", "np.bool_)")
    kernel = kernel_files.function(head, "y[i] = hal.float32(A[n - i])", tmp_path)
    (table,) = (node for node in kernel.lower().uops if node.op == "TABLE")
    assert table.dtype is (float32 if dtype.name in ("float16", "bfloat16") else dtype)
    y = np.zeros(3, "f4")
    interpret(kernel, y, vals=(2,), grid=1, block=3)
    assert y.tolist() == [1, 0, 1]
    assert ml_dtypes.bfloat16  # what the text above imports


BAD = [
    ("y[i] = hal.float32(W[3])", "W[3]", "the index 3 is outside of a tuple", "Correct it"),
    ("v = hal.atomic_load(W, i)", "W", "nothing changes the captured tuple 'W'", "Write W[i]."),
    ("y[i] = INF[i]", "INF", "INF holds inf, and a table of float32 cannot", "Pass it as a buffer"),
    ("y[i] = HUGE[i]", "HUGE", "HUGE holds 1e+300, and a table", 'np.array(HUGE, "f8")'),
    ("v = RAGGED[i][0]", "RAGGED", "the same number of elements", "rows of one length"),
    ("v = WORDS[i]", "WORDS", "its elements are not all numbers", "hal.unroll"),
    ("v = MIXED[i]", "MIXED", "it mixes float32 and int64", 'np.array(MIXED, "f8")'),
    ("v = WHOLE[i]", "WHOLE", "WHOLE holds 0.5, and a table of int64", 'np.array(WHOLE, "f8")'),
    ("v = NONE[i]", "NONE", "no table: it is empty", "rows of one"),
    ("v = DEEP[i, 0, 0, 0, 0]", "DEEP", "it has 5 dimensions, and four are", "hal.unroll"),
    ("v = LARGE[i]", "LARGE", "160000 bytes, and 65536 is the limit", "Pass it as a buffer"),
    ("v = HALF[i, 0]\nw = HALF[1:, i]", "", "a slice", "Index one element"),
    ("v = COMPLEX[i]", "COMPLEX", "a numpy ndarray of complex64 is not a constant", "real num"),
    ("v = EMPTY[i, 0]", "EMPTY", "no elements to index", "Capture its number"),
    ("v = HALF[i, 100]", "100]", "the index 100 is outside of 'HALF'", "The last index is 99."),
    ("v = HALF[i, 0]\nw = np.ones(9)[i]", "np.ones", "np.ones is not part", "hal.local"),
]


test_refused_with_place_and_advice = kernel_files.refused(HEAD, BAD)


@pytest.mark.parametrize(
    ("body", "says"),
    [("v = W[n]", "a read of 'W'"), ("v = HALF[n // 90, n]", "the index along axis 1 of 'HALF'"),
     ("v = HALF[n][0]", "the index along axis 0 of 'HALF'")],
)  # fmt: skip
def test_an_index_outside_is_out_of_bounds(body, says, tmp_path):
    with pytest.raises(hal.OutOfBounds, match=r"by thread \(0, 0, 0\)") as raised:
        interpret(lowered(body, tmp_path), np.zeros(1, "f4"), vals=(100,), threads=1)
    assert says in raised.value.problem


def test_all_tables_of_a_kernel_have_a_limit(tmp_path):
    head = HEAD.replace("HALF =", 'OTHER = np.zeros(9000, "f4")\nHALF =')
    with pytest.raises(hal.KernelSyntaxError, match="76000 bytes up to here, and 65536"):
        kernel_files.function(head, "v = HALF[i, 0] + OTHER[i]", tmp_path)


@pytest.mark.parametrize(
    ("dtype", "arg", "says"),
    [(hal.int32, ("t", ()), "one element or more"), (hal.int32, ("t", [1]), "a tuple of numbers"),
     (hal.uint8, ("t", (256,)), "uint8 cannot hold 256"),
     (hal.int32, ("t", (1.5,)), "int32 cannot hold 1.5"),
     (hal.float32, ("t", (float("nan"),)), "nan is no finite number"),
     (hal.float16, ("t", (1.0,)), "a dtype that kernels compute with"),
     (hal.float64, ("t", (0.0,) * 8193), "the TABLEs have too many bytes")],
)  # fmt: skip
def test_broken_rules_are_named(dtype, arg, says):
    signature = Signature.parse("k", "y: float32*")
    with pytest.raises(hal.InvalidKernel, match=says):
        verify(Kernel("k", signature, (UOp("TABLE", dtype, (), arg),)))


def test_a_table_is_only_read():
    table, zero = UOp("TABLE", hal.int32, (), ("t", (1,))), UOp("CONST", hal.int32, (), 0)
    store = UOp("STORE", None, (table, zero, zero))
    with pytest.raises(hal.InvalidKernel, match="a TABLE is only read"):
        verify(Kernel("k", Signature.parse("k", "y: float32*"), (table, zero, store)))


def test_a_constant_index_leaves_no_table():
    table, one = UOp("TABLE", hal.int32, (), ("t", (1, 7))), UOp("CONST", hal.int32, (), 1)
    y = UOp("PARAM", hal.int32, (), 0)
    load = UOp("LOAD", hal.int32, (table, one))
    kernel = Kernel(
        "k",
        Signature.parse("k", "y: int32*"),
        (y, table, one, load, UOp("STORE", None, (y, one, load))),
    )
    verify(kernel)
    assert [node.op for node in fold(kernel).uops] == ["PARAM", "CONST", "CONST", "STORE"]


STEPS = (np.float32(0.5), np.float32(0.25))
PLACES = ((np.int16(3), 4), (5, np.int16(6)))
ROOTS = (np.sqrt(0.5), 0.1, 1)


@hal.kernel
def of_numpy(y: hal.Ptr[hal.float64], x: hal.ConstPtr[hal.int32]):
    i = hal.global_idx(0)
    y[i] = hal.float64(STEPS[x[i]]) + hal.float64(PLACES[x[i]][1 - x[i]]) + ROOTS[x[i]]


def test_numpys_numbers_give_a_tuple_their_dtype():
    y = np.zeros(2)
    interpret(of_numpy, y, np.array([0, 1], "i4"), grid=1, block=2)
    assert y.tolist() == [4.5 + np.sqrt(0.5), 5.25 + 0.1]
    tables = [node.dtype for node in of_numpy.lower().uops if node.op == "TABLE"]
    assert tables == [hal.float32, hal.int16, hal.float64]

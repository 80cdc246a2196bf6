"""`hal.view` and `p[k:]`: the same memory with another shape, or from another element on."""

from functools import partial

import kernel_files
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_files import IMPORTS

import hal_core as hal
from hal_kernel.interpreter import interpret
from hal_kernel.render import RENDERERS


@hal.func
def put(p: hal.Ptr[hal.int32], i: hal.int32, v: hal.int32) -> None:
    p[i] = v


@hal.func
def at(p, y, x):
    return p[y, x]


@hal.kernel
def in_four_dimensions(
    y: hal.Ptr[hal.int64], a: hal.int32, b: hal.int32, c: hal.int32, d: hal.int32
) -> None:
    u = hal.view(y, (a, b, c, d))
    for i in range(a):
        for j in range(b):
            for k in range(c):
                for m in range(d):
                    u[i, j, k, m] = hal.int64(i * 1000 + j * 100 + k * 10 + m)


@hal.kernel
def parts(y: hal.Ptr[hal.int32], h: hal.int32, w: hal.int32, start: hal.int32) -> None:
    """Shapes of parts, parts of shapes, and functions that take either."""
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i >= w or j >= h:
        return
    image = hal.view(y[start:], (h, w))
    image[j, i] += 1
    row = y[start:][j * w :]
    row[i] += 10
    put(row, i, row[i] + 100)
    put(image, j * w + i, at(image, j, i) + 1000)
    hal.view(hal.view(row, w), (w, 1))[i, 0] += 10000
    if i % 2 == 0:
        even = row[i:]
    else:
        return
    even[0] += 100000


@hal.kernel
def in_loops(y: hal.Ptr[hal.int32], n: hal.int32) -> None:
    """A part has the extents of the place where it is made."""
    for k in hal.unroll(3):
        row = y[k * n :]
        row[0] = k
    width = hal.int32(2)
    u = hal.view(y, (n, width))
    width = 3
    while True:
        last = y[3 * n :]
        break
    u[1, 1] = width
    last[0] = 7


@hal.kernel(block=(8, 1, 1))
def of_shared_memory(y: hal.Ptr[hal.int32], n: hal.int32) -> None:
    tile = hal.shared(hal.int32, 8)
    t = hal.thread_idx(0)
    hal.view(tile, (4, 2))[t // 2, t % 2] = t
    hal.barrier()
    upper = tile[4:]
    bytes = hal.bitcast(hal.int8, upper)
    y[t] = upper[t % 4] + hal.int32(bytes[0]) + hal.view(tile[n:], (1, 2))[0, 1]


@given(st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_elements_lie_row_after_row(shape):
    y = np.zeros(shape, "i8")
    interpret(in_four_dimensions, y.reshape(-1), vals=shape, threads=1)
    weights = 1000, 100, 10, 1
    index = np.indices(shape)
    assert (y == sum(one * axis for one, axis in zip(weights, index, strict=True))).all()


def test_parts_of_parts():
    y = np.zeros(4 + 15, "i4")
    interpret(parts, y, vals=(3, 5, 4), threads=(5, 3))
    assert not y[:4].any()
    assert (y[4:].reshape(3, 5) == [[111111, 11111] * 2 + [111111]] * 3).all()


def test_parts_in_loops():
    y = np.zeros(16, "i4")
    interpret(in_loops, y, vals=(4,), threads=1)
    assert y.tolist() == [0, 0, 0, 3, 1, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0]


def test_parts_of_shared_memory():
    y = np.zeros(8, "i4")
    interpret(of_shared_memory, y, vals=(5,), threads=8)
    assert y.tolist() == [4 + 4 + 6, 5 + 4 + 6, 6 + 4 + 6, 7 + 4 + 6] * 2


HEAD = (
    IMPORTS
    + """
@hal.kernel
def f(
    y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.float32], n: hal.int32, m: hal.int64,
    b: hal.Ptr[hal.uint8], raw: hal.Ptr[hal.any_],
):
    i = hal.global_idx(0)
    tile = hal.shared(hal.int32, (3, 4))
    u = hal.view(y, (n, 4))
"""
)


lowered = partial(kernel_files.function, HEAD)


BAD = [
    ("v = hal.view(y)", "hal.view", "takes 2 arguments, not 1", "hal.view(p, (height, width))"),
    ("v = hal.view(raw, (2, 3))", "hal.view", "has no dtype", "hal.bitcast(hal.float32, raw)"),
    ("v = hal.view(y, (1, 2, 3, 4, 5))", "(1,", "one to four positive ints", "hal.view"),
    ("v = hal.view(y, ())", "()", "one to four positive ints", "hal.view"),
    ("v = hal.view(y, (n, 0))", "(n, 0)", "one to four positive ints", "hal.view"),
    ("v = hal.view(y, (n, x[0]))", "(n, x", "int32 or int64, not float32", "hal.int32(...)"),
    ("v = hal.view(y, (n, m))", "(n, m)", "the shape has operands of", "hal.int64(...)"),
    ("v = hal.view(tile, (4, 4))", "(4, 4)", "the shape has 16 elements, and 'tile' 12", "smaller"),
    ("u[i] = 0", "u[i]", "'u' has the shape (?, 4), and takes both indices", "Write u[i, j]."),
    ("u[i, 4] = 0", "4]", "the index 4 is outside of 'u', of shape (?, 4)", "last index is 3"),
    ("u = 3", "u =", "'u' is assigned elsewhere too", "a name of its own"),
    ("y += 3", "y", "the pointer 'y' cannot be assigned", "Name a part of it: part = y[k:]."),
    ("v = hal.view(x, (n, 2))\nv[0, 0] = 1.0", "v[0", "'v' is only read", "x: hal.Ptr["),
    ("v = u[1:]", "u[1:]", "'u' has the shape (?, 4), and no single start", "hal.view(u, size)"),
    ("v = y[-1:]", "-1", "the start -1 is outside of 'y'", "Count from the start."),
    ("v = hal.view(tile, 12)[13:]", "13", "the start 13 is outside of 'tile'", "Count from"),
    ("v = y[1:3]", "1:3", "a start, and no end", "hal.view(y[1:], n) for n elements."),
    ("v = y[::2]", "::2", "no step", "Index one element, y[i]"),
    ("v = hal.bitcast(hal.int32, b[i:])[0]", "hal.bitcast", "within an element of int32", "[k:]."),
    ("v = hal.bitcast(hal.int32, b[3:])[0]", "hal.bitcast", "within an element of int32", "[k:]."),
    ("v, w = hal.view(y, 2), n", "hal.view", "is not a value", "Write part = hal.view(y, 2) on a"),
    ("v, w = y[i:], y[n:]", "y[i:]", "'y' is not a value", "a line of its own: part = y[k:]."),
    ("v = y", "y", "'y' is not a value", "part = y[k:]."),
    ("v = y[i:]\nv = y[n:]", "v =", "'v' is assigned elsewhere too", "a name of its own"),
    ("if n > 0:\n    v = y[i:]\nv[0] = 1", "v[0]", "'v' is not assigned on every", "before the if"),
]  # fmt: skip


test_refused_with_place_and_advice = kernel_files.refused(HEAD, BAD)


FAULTS = [
    ("u[0, n] = 1", "the index along axis 1 of 'u'", 5, "limit 0 to 3"),
    ("u[m32, 1] = 1", "the index along axis 0 of 'u'", -2, "limit 0 to 4"),
    ("v = y[n:]\nv[m32] = 1", "the index of 'v'", -2, "limit 0 or more"),
    ("v = y[m32:]\nv[3] = 1", "the index m32 that y is cut at", -2, "limit 0 or more"),
    ("v = hal.view(y, n)\nv[n] = 1", "the index of 'v'", 5, "limit 0 to 4"),
    ("v = hal.view(y, n)[n:]\nw = v[0]", "the index of 'v'", 0, "it has no element"),
    ("v = hal.view(y, n)[n + 1:]\nw = v[0]", "the index n + 1 that", 6, "limit 0 to 5"),
    ("tile[0, n] = 1", "the index along axis 1 of 'tile'", 5, "limit 0 to 3"),
    ("v = hal.load_if(n > 0, u, (0, n), 3)", "the index along axis 1 of 'u'", 5, "limit 0 to 3"),
]


@pytest.mark.parametrize(("body", "says", "got", "limit"), FAULTS, ids=lambda part: str(part)[:40])
def test_an_index_outside_of_a_shape_is_out_of_bounds(body, says, got, limit, tmp_path):
    """The buffer has room for all of these."""
    kernel = lowered(f"m32 = hal.int32(m)\n{body}", tmp_path)
    arrays = np.zeros(64, "i4"), np.zeros(4, "f4"), np.zeros(4, "u1"), np.zeros(4, "u1")
    with pytest.raises(hal.OutOfBounds, match=r"by thread \(0, 0, 0\)") as raised:
        interpret(kernel, *arrays, vals=(5, -2), threads=1)
    assert says in raised.value.problem
    assert (raised.value.got, raised.value.limit) == (got, limit)


def test_a_shape_that_does_not_fit_is_found_when_it_is_made(tmp_path):
    kernel = lowered("v = hal.view(hal.view(y, n), (2, n))", tmp_path)
    arrays = np.zeros(64, "i4"), np.zeros(4, "f4"), np.zeros(4, "u1"), np.zeros(4, "u1")
    with pytest.raises(hal.FailedAssert, match=r"the shape \(2, n\) has more elements than 'y'"):
        interpret(kernel, *arrays, vals=(5, 0), threads=1)


def test_an_index_that_is_not_used_is_not_tested(tmp_path):
    kernel = lowered("y[0] = hal.load_if(n < 4, u, (0, n), 3)", tmp_path)
    arrays = np.zeros(64, "i4"), np.zeros(4, "f4"), np.zeros(4, "u1"), np.zeros(4, "u1")
    interpret(kernel, *arrays, vals=(5, 0), threads=1)
    assert arrays[0][0] == 3


def test_the_index_of_a_load_if_is_computed_and_tested_in_both_cases(tmp_path):
    """Its tests were moved out of the choice, ahead of the nodes that they need."""
    kernel = lowered("y[0] = hal.load_if(n < 4, y, u[0, n] if n > 1 else n, 3)", tmp_path)
    arrays = np.arange(64, dtype="i4"), np.zeros(4, "f4"), np.zeros(4, "u1"), np.zeros(4, "u1")
    interpret(kernel, *arrays, vals=(3, 0), threads=1)
    assert arrays[0][0] == 3
    with pytest.raises(hal.OutOfBounds, match="along axis 1 of 'u'"):
        interpret(kernel, *arrays, vals=(4, 0), threads=1)


def test_the_tests_of_indices_cost_nothing_when_rendered(tmp_path):
    """Text for text what arithmetic by hand gives."""
    shaped = lowered("v = hal.view(y, (n, n))\nif i < n:\n    v[i, 2] = 7", tmp_path)
    plain = lowered("if i < n:\n    y[i * n + 2] = 7", tmp_path)
    for language in ("c", "llvm", "ptx", "opencl", "cuda", "hip", "metal"):
        render = RENDERERS[language]().render
        assert render(shaped.lower()) == render(plain.lower())

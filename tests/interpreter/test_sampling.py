"""Sampling finds out what a launch needs and does: no element less, no byte or operation more."""

import numpy as np
import pytest
from kernel_files import saxpy

import hal_core as hal
from hal_kernel.errors import KernelFault, OutOfBounds
from hal_kernel.interpreter import interpret
from hal_kernel.interpreter.sampling import Sample, made_up, sample


@hal.kernel
def smooth(y: hal.Ptr[hal.float64], x: hal.ConstPtr[hal.float64], w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if 0 < i < w - 1 and 0 < j < h - 1:
        y[j * w + i] = x[j * w + i - 1] + x[j * w + i + 1]


@hal.kernel
def gather(y: hal.Ptr[hal.int16], x: hal.ConstPtr[hal.int16], order: hal.ConstPtr[hal.int32]):
    i = hal.global_idx(0)
    y[i] = x[2 * order[i] + 1]


@hal.kernel
def compact(y: hal.Ptr[hal.int32], count: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32]):
    i = hal.global_idx(0)
    if x[i] % 3 == 0:
        y[hal.atomic_add(count, 0, 1)] = x[i]


@hal.kernel
def seen_as_bytes(y: hal.Ptr[hal.uint8], x: hal.ConstPtr[hal.any_], words: hal.Ptr[hal.uint32]):
    i = hal.global_idx(0)
    y[i] = hal.bitcast(hal.uint8, words)[i] ^ hal.uint8(hal.bitcast(hal.float64, x)[i])


@hal.kernel(block=8)
def rows(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32) -> None:
    own = hal.shared(hal.float32, 8)
    t = hal.thread_idx(0)
    own[t] = 0.0
    for k in range(t, n, 8):
        own[t] += hal.exp(x[hal.block_idx(0) * n + k])
    hal.barrier()
    if t == 0:
        y[hal.block_idx(0)] = hal.fma(own[0], own[1], own[2])


CASES = [
    (saxpy, (2.0, 100), 128, Sample((100, 100), 100 * 4 * 3, 200)),
    # 12 x 8 threads of 10 x 6 elements: 8 x 4 inside; in the rows read, all but the rims' ends.
    (smooth, (10, 6), (12, 8), Sample((6 * 10 - 10 - 1, 6 * 10 - 10), 8 * (32 + 40), 32)),
    (gather, (), 10, Sample((10, 20, 10), 10 * (2 + 2 + 4), 0)),
    (compact, (), 100, Sample((34, 1, 100), 4 * (34 + 2 + 100), 34)),
    (seen_as_bytes, (), 10, Sample((10, 80, 3), 10 + 80 + 12, 10)),
    (rows, (20,), 16, Sample((2, 40), 4 * 42, 2 * (2 * 20 + 2))),
]


def _geometry(kernel, threads):
    """Return grid and block with just so many threads: some kernels here have no guard."""
    across, down = threads if isinstance(threads, tuple) else (threads, 1)
    block = kernel.block or (1, 1, 1)
    return (across // block[0], down, 1), block


@pytest.mark.parametrize(
    ("kernel", "vals", "threads", "expected"), CASES, ids=[case[0].name for case in CASES]
)
def test_what_a_launch_needs_and_does(kernel, vals, threads, expected):
    """The kernel runs on buffers of these sizes, and on none smaller."""
    grid, block = _geometry(kernel, threads)
    assert sample(kernel.lower(), vals, (grid, block)) == expected
    pointers = zip(kernel.signature.pointers, expected.sizes, strict=True)
    arrays = [made_up(param.dtype, size) for param, size in pointers]
    interpret(kernel, *map(np.copy, arrays), vals=vals, grid=grid, block=block)
    for place, size in enumerate(expected.sizes):
        smaller = [np.copy(array) for array in arrays]
        smaller[place] = smaller[place][: size - 1]
        with pytest.raises(OutOfBounds):
            interpret(kernel, *smaller, vals=vals, grid=grid, block=block)


def test_a_given_buffer_does_not_grow():
    given = {"x": np.zeros(99, "f4")}
    with pytest.raises(OutOfBounds, match=r"of 'x' .*got 99; limit 0 to 98"):
        sample(saxpy.lower(), (1.0, 100), ((100, 1, 1), (1, 1, 1)), given)
    assert not given["x"].any()
    order = {"order": np.array([7, 7], "i4")}
    assert sample(gather.lower(), (), ((2, 1, 1), (1, 1, 1)), order).sizes == (2, 16, 2)
    odd = {"x": np.zeros(85, "u1")}  # ten elements of eight bytes, and five bytes
    assert sample(seen_as_bytes.lower(), (), ((10, 1, 1), (1, 1, 1)), odd).sizes == (10, 85, 3)


def test_a_given_buffer_is_not_written():
    given = {"y": np.ones(10, "f4")}
    sample(saxpy.lower(), (1.0, 10), ((10, 1, 1), (1, 1, 1)), given)
    assert (given["y"] == 1).all()


@hal.kernel
def told(y: hal.Ptr[hal.int32]) -> None:
    hal.print("y", y[0])


def test_what_a_kernel_prints_is_not_printed(capsys):
    assert sample(told.lower(), (), ((2, 1, 1), (1, 1, 1))).sizes == (1,)
    assert capsys.readouterr() == ("", "")


@hal.kernel
def far(y: hal.Ptr[hal.int64]) -> None:
    y[hal.global_idx(0) + (1 << 30)] = 1


@hal.kernel
def before(y: hal.Ptr[hal.int64]) -> None:
    y[hal.global_idx(0) - 1] = 1


@hal.kernel
def stuck(y: hal.Ptr[hal.int64]) -> None:
    while y[0] < 10:
        y[0] = 0


@pytest.mark.parametrize(
    ("kernel", "said"),
    [(far, r"'y' would have to be larger than any made-up buffer .*limit 134217728\)"),  # 1 GiB
     (before, r"out of bounds: a write of 'y' .*got -1"),
     (stuck, "does not end: its loops have taken too long.*left, or give smaller sizes")],
)  # fmt: skip
def test_no_arguments_suit(kernel, said):
    with pytest.raises(KernelFault, match=said):
        sample(kernel.lower(), (), ((1, 1, 1), (1, 1, 1)), seconds=0.1)


@pytest.mark.parametrize("dtype", [hal.float16, hal.float32, hal.float64])
def test_made_up_floats_are_near_1(dtype):
    numbers = made_up(dtype, 200)
    assert numbers.dtype.name == dtype.name and numbers.min() == 0.5 and numbers.max() < 1.5


def test_made_up_numbers_of_other_kinds():
    assert made_up(hal.uint8, 300)[[0, 255, 256]].tolist() == [0, 255, 0]
    assert made_up(hal.int64, 3).tolist() == [0, 1, 2]
    assert made_up(hal.bool_, 3).tolist() == [False, True, False]
    brain = (made_up(hal.bfloat16, 64).astype("u4") << 16).view("f4")
    assert brain.min() == 0.5 and brain.max() < 1.5
    assert made_up(hal.any_, 8).view("f4").tolist() == [0.5, 0.515625]

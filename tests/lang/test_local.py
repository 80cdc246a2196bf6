"""`hal.local`: arrays of the thread's own."""

from functools import partial

import kernel_files
import numpy as np
import pytest
from kernel_files import IMPORTS

import hal_core as hal
from hal_kernel.interpreter import interpret


@hal.func
def median(p: hal.ConstPtr[hal.float32], i: hal.int32) -> hal.float32:
    t = hal.local(hal.float32, 3)
    for k in hal.unroll(3):
        t[k] = p[i + k]
    return max(min(t[0], t[1]), min(max(t[0], t[1]), t[2]))


@hal.func
def increase(p: hal.Ptr[hal.int32], i: hal.int32) -> None:
    p[i] += 1


@hal.kernel
def every_use(
    y: hal.Ptr[hal.float32], bins: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.float32], n: hal.int32
) -> None:
    i = hal.global_idx(0)
    if i >= n:
        return
    y[i] = median(x, i) + median(x, i + 1)
    count = hal.local(hal.int32, (2, 2))
    flat = hal.view(count, 4)
    for k in range(4):
        flat[k] = 0
    for k in range(n):
        increase(count, hal.int32(x[k]) % 4)
    lower = flat[2:]
    bins[i] = count[0, i % 2] * 100 + lower[i % 2]


def test_a_function_has_arrays_and_takes_arrays():
    n = 9
    x = np.random.default_rng(3).integers(0, 50, n + 3).astype("f4")
    y, bins = np.zeros(n, "f4"), np.zeros(n, "i4")
    interpret(every_use, y, bins, x, vals=(n,), threads=n)
    medians = np.median(np.lib.stride_tricks.sliding_window_view(x, 3), axis=1)
    assert (y == medians[:n] + medians[1 : n + 1]).all()
    count = np.bincount(x[:n].astype(int) % 4, minlength=4)
    assert (bins == [count[i % 2] * 100 + count[2 + i % 2] for i in range(n)]).all()


HEAD = (
    IMPORTS
    + """
@hal.kernel
def f(y: hal.Ptr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    t = hal.local(hal.int32, (2, 3))
"""
)


lowered = partial(kernel_files.function, HEAD)


BAD = [
    ("v = hal.local(hal.int32)", "hal.local", "a dtype and a shape", "hal.local(hal.float32, (16"),
    ("v = hal.local(3, hal.int32)", "3", "the dtype comes first", "v = hal.local(hal.int32, 3)."),
    ("v = hal.local(hal.int32, n)", "n", "known at compile time", "Capture"),
    ("v = hal.local(hal.int32, 1019)", "1019", "4112 bytes up to here, and 4096 is", "a buffer"),
    ("hal.atomic_add(t, (0, 0), 1)", "t,", "no other thread sees", "t[i] += value"),
    ("v = hal.atomic_load(t, (0, 0))", "t,", "no other thread sees", "Write v = t[i], or"),
    ("hal.atomic_store(t, (0, 0), 1)", "t,", "no other thread sees", "Write t[i] = value, or"),
    ("v = hal.bitcast(hal.int8, t)", "hal.bit", "have one dtype", "hal.bitcast(hal.int8, t[i])"),
    ("if n > 0:\n    v = hal.local(hal.int32, 3)\nv[0] = 1", "v[0]", "on every path", "before the"),
]


test_refused_with_place_and_advice = kernel_files.refused(HEAD, BAD)


FAULTS = [
    ("t[n, 0] = 1", hal.OutOfBounds, "the index along axis 0 of 't'"),
    ("v = hal.local(hal.int32, 3)\nv[n] = 1", hal.OutOfBounds, "a write of 'v'"),
    ("y[i] = t[n - 5, 0]", hal.KernelFault, "element 0 of 't', which nothing has written"),
    (
        "for k in range(2):\n    v = hal.local(hal.int32, 2)\n    if k == 0:\n        v[0] = 1\n"
        "    y[i] = v[0]",
        hal.KernelFault, "element 0 of 'v', which nothing has written",
    ),
    ("if i == 0:\n    t[0, 0] = 1\ny[i] = t[0, 0]", hal.KernelFault, r"by thread (1, 0, 0)"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "error", "says"), FAULTS, ids=lambda part: str(part)[:40])
def test_faults(body, error, says, tmp_path):
    kernel = lowered(body, tmp_path)
    with pytest.raises(error) as raised:
        interpret(kernel, np.zeros(4, "i4"), vals=(5,), grid=1, block=4)
    assert says in raised.value.problem


def test_a_barrier_does_not_depend_on_what_a_thread_keeps(tmp_path):
    body = "t[0, 0] = i\nif t[0, 0] > 3:\n    hal.barrier()"
    with pytest.raises(hal.KernelSyntaxError, match="the condition differs between them"):
        lowered(body, tmp_path)

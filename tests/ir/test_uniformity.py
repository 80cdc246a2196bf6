"""Test which values all threads of a block agree on."""

import pytest
from kernel_files import IMPORTS, lowered

import hal_core as hal

HEAD = (
    IMPORTS
    + """
@hal.kernel
def f(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32):
    t, i = hal.thread_idx(0), hal.global_idx(0)
"""
)
B = "    hal.barrier()"
REACHED = [
    "hal.barrier()\ny[0] = 1",
    f"for _ in range(n):\n{B}",
    f"if hal.block_idx(0) < n and hal.block_dim(0) > 3:\n{B}",
    f"s = hal.block_dim(0) // 2\nwhile s > 0:\n    if t < s:\n        y[t] = 1\n{B}\n    s //= 2",
    f"for _ in range(x[hal.block_idx(0)]):\n{B}",
    "if hal.block_idx(0) >= n:\n    return\nhal.barrier()",
    "hal.barrier()\nif i >= n:\n    return\ny[i] = 1",
    f"k = 0\nwhile True:\n    k += 1\n{B}\n    if k > n:\n        break",
    f"for _ in range(n):\n    k = 0\n    while True:\n        k += 1\n        if k > t:\n"
    f"            break\n{B}",
]  # fmt: skip
MISSED = [
    (f"if t < n:\n{B}", "the condition differs"),
    (f"if t < n:\n    y[0] = 1\nelse:\n{B}", "the condition differs"),
    (f"for _ in range(t):\n{B}", "the range differs"),
    ("if i >= n:\n    return\nhal.barrier()", "some threads have returned before"),
    (f"for k in range(n):\n{B}\n    if k == t:\n        break",
     "some threads break out of its loop before others"),
    (f"for k in range(n):\n    if k == t:\n        continue\n{B}",
     "some threads skip to the next iteration of its loop"),
    (f"for k in range(n):\n{B}\n    if k == t:\n        return",
     "some threads have returned before"),
    (f"s = 0\nif t > n:\n    s = 3\nfor _ in range(s):\n{B}", "the range differs"),
    (f"s = 0\nfor _ in range(n):\n    if s == 0:\n    {B}\n    s = t", "the condition differs"),
    (f"if x[i] > 0:\n{B}", "the condition differs"),
    (f"if hal.atomic_add(y, 0, 1) == 0:\n{B}", "the condition differs"),
    (f"k = 0\nwhile k * k < t:\n    k += 1\nif k > n:\n{B}", "the condition differs"),
]  # fmt: skip


@pytest.mark.parametrize("body", REACHED)
def test_a_barrier_that_all_reach(body, tmp_path):
    lowered(HEAD, body, tmp_path)


@pytest.mark.parametrize(("body", "why"), MISSED)
def test_a_barrier_that_some_pass_by(body, why, tmp_path):
    with pytest.raises(
        hal.KernelSyntaxError, match=rf"this barrier: {why}.*\(line \d+\)"
    ) as caught:
        lowered(HEAD, body, tmp_path)
    assert caught.value.text is not None and "hal.barrier()" in caught.value.text

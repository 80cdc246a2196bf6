"""`hal.unroll`: a body once for each turn, with a Python number as counter."""

from functools import partial

import kernel_files
import numpy as np
import pytest
from kernel_files import IMPORTS

from hal_kernel.interpreter import interpret

HEAD = (
    IMPORTS
    + """
WEIGHTS = (5, 7, 11)

@hal.kernel
def f(y: hal.Ptr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
"""
)


lowered = partial(kernel_files.lowered, HEAD)


RUNS = {
    "a number as counter": ("for k in hal.unroll(3):\n    y[i] += WEIGHTS[k] * k", [29, 29, 29]),
    "bounds and a step": ("for k in hal.unroll(7, 1, -2):\n    y[i] = y[i] * 10 + k", [753] * 3),
    "no turn": ("for k in hal.unroll(3, 3):\n    y[i] = nothing", [0, 0, 0]),
    "nested": (
        "for j in hal.unroll(2):\n    for k in hal.unroll(j, 3):\n        y[i] = y[i] * 10 + k",
        [1212, 1212, 1212],
    ),
    "an if that the counter decides": (
        "for k in hal.unroll(3):\n    if k == 1:\n        y[i] += nothing if k == 0 else 4\n"
        "    elif k < 1:\n        y[i] += 2",
        [6, 6, 6],
    ),
    "a local of the turn before": (
        "for k in hal.unroll(3):\n    if k > 0:\n        y[i] += v\n    v = y[i] + k + 1",
        [4, 4, 4],
    ),
    "a local that one turn assigns under a condition": (
        "for k in hal.unroll(2):\n    if k == 0 or i > 1:\n        v = k + 1\n    y[i] += v",
        [2, 2, 3],
    ),
    "a real loop inside, which is left": (
        "for k in hal.unroll(3):\n    while True:\n        y[i] += 1\n        if y[i] > k * i:\n"
        "            break",
        [3, 3, 5],
    ),
    "a return that one turn reaches": (
        "for k in hal.unroll(3):\n    y[i] += 1\n    if k == 1:\n        return\ny[i] = 99",
        [2, 2, 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_unrolled_text_means_what_the_loop_means(name, tmp_path):
    body, expected = RUNS[name]
    y = np.zeros(3, dtype=np.int32)
    interpret(lowered(body, tmp_path), y, vals=(3,), threads=3, block=3)
    assert y.tolist() == expected


def test_no_loop_is_left_of_256_turns(tmp_path):
    kernel = lowered("for k in hal.unroll(256):\n    y[i] += WEIGHTS[k % 3]", tmp_path)
    ops = [node.op for node in kernel.uops]
    assert ops.count("STORE") == 256 and "RANGE" not in ops and "VAR" not in ops


BAD = [
    ("for k in hal.unroll(257):\n    pass", "hal.unroll", "256 iterations", "range(...)"),
    ("for k in hal.unroll(n):\n    pass", "n)", "known at compile time", "range(...) for bounds"),
    ("for k in hal.unroll(range(4)):\n    pass", "range", "range is not part", "hal.unroll(0"),
    ("for k in hal.unroll(0, 4, 0):\n    pass", "0)", "an int other than 0", "hal.unroll(4)"),
    ("for k in hal.unroll():\n    pass", "hal.unroll", "one to three arguments", "hal.unroll(4)"),
    ("for k in hal.unroll(4):\n    break", "break", "break cannot leave an unrolled", "under if"),
    ("for k in hal.unroll(4):\n    continue", "continue", "cannot leave an", "range(...)"),
    ("for k in hal.unroll(4):\n    pass\ny[0] = k", "k", "no value outside its loop", "before the"),
    ("v = hal.unroll(4)", "hal.unroll", "hal.unroll is for loops", "for k in hal.unroll(4):"),
    *(
        (
            "for a in hal.unroll(256):\n    for b in hal.unroll(256):\n"
            f"        for c in hal.unroll(256):\n            {body}",
            "hal.unroll",
            "more than 50000 operations",
            "loop with range",
        )
        for body in ("y[0] += a", "pass")
    ),
]  # fmt: skip


test_refused_with_place_and_advice = kernel_files.refused(HEAD, BAD)

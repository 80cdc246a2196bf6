"""Loops that are left, returns, and what is visible where paths meet."""

from functools import partial

import kernel_files
import pytest
import run_on_lists
from kernel_files import IMPORTS, load

import hal_core as hal

HEAD = (
    IMPORTS
    + """
FLAG = True

@hal.kernel
def f(y: hal.Ptr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
"""
)


lowered = partial(kernel_files.lowered, HEAD)


RUNS = {
    "while, its condition read anew": (
        "y[i] = i\nwhile y[i] < n and y[i] != 3:\n    y[i] += 2",
        [10, 3, 10, 3],
    ),
    "while that never runs": (
        "while False:\n    y = i\nwhile n < 0:\n    n = 1\ny[i] = n", [10, 10, 10, 10]),
    "continue": ("for k in range(n):\n    if k % 2 == 0:\n        continue\n    y[i] += k",
                 [25, 25, 25, 25]),
    "continue of a while": (
        "k = 0\nwhile k < n:\n    k += 1\n    if k % 2 == 1:\n        continue\n    y[i] += k",
        [30] * 4,
    ),
    "a counter that is assigned behind its loop": (
        "for k in range(n):\n    y[i] += k\nk = i\nwhile k > 0:\n    y[i] += 100\n    k -= 1",
        [45, 145, 245, 345],
    ),
    "a counter that is assigned ahead of its loop": (
        "k = i\nfor k in range(k + 1):\n    y[i] += 10\ny[i] += k", [10, 21, 32, 43]),
    "a counter that keeps what it was, or where the loop was left": (
        "k = 7\nfor k in range(i):\n    if k == 1:\n        break\ny[i] = k", [7, 0, 1, 1]),
    "a counter whose loop a while repeats": (
        "k = 5\nwhile y[i] < 9:\n    y[i] += k\n    for k in range(i + 3):\n        pass",
        [9, 11, 9, 10],
    ),
    "a counter by a step at run time, ahead and behind": (
        "k = 1\nfor k in range(k, n, n - 2 * i - 5):\n    y[i] += k\ny[i] += 100 * k\nk = y[i]\n"
        "y[i] = k + 1",
        [608, 713, 946, 101],
    ),
    "return": ("if i > 1:\n    return\ny[i] = 1", [1, 1, 0, 0]),
    "return None": ("if i > 1:\n    return None\ny[i] = 1", [1, 1, 0, 0]),
    "a return that a constant decides": ("y[i] = 1\nif FLAG:\n    return\ny[i] = nothing", [1] * 4),
    "assigned where the else has left": (
        "if i < 2:\n    v = i * 2\n    if v == 0:\n        w = n\n    else:\n        w = v\n"
        "else:\n    return\ny[i] = v + w",
        [10, 4, 0, 0],
    ),
    "assigned at every break": (
        "k = 0\nwhile True:\n    v = k * 2\n    if v > i:\n        w = 1\n        break\n"
        "    k += 1\n    u = k\n    if u == 2:\n        w = 2\n        break\n"
        "y[i] = 100 * w + 10 * v + k",
        [121, 121, 222, 222],
    ),
    "a parameter under another name": (
        "while True:\n    v = n\n    break\ny[i] = v\nif i > 0:\n    return\nelse:\n    w = n\n"
        "y[i] += w",
        [20, 10, 10, 10],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_control_flow_is_pythons(name, tmp_path):
    body, expected = RUNS[name]
    y = [0] * 4
    run_on_lists.run(lowered(body, tmp_path), [y, 10], threads=4)
    assert y == expected


def test_what_leaves_is_known_by_its_line(tmp_path):
    kernel = lowered("for k in range(n):\n    if k > i:\n        break\nreturn", tmp_path)
    start = HEAD.count("\n")
    lines = {node.op: node.line - start for node in kernel.uops}
    assert lines["RANGE"] == 1 and lines["BREAK"] == 3 and lines["RETURN"] == 4


def test_a_plain_guard_needs_no_variables(tmp_path):
    kernel = lowered("if i >= n:\n    return\nv = i * 2\ny[i] = v", tmp_path)
    assert "VAR" not in [node.op for node in kernel.uops]


@pytest.mark.parametrize("body", ["break", "continue"])
def test_python_itself_refuses_a_break_outside_of_loops(body, tmp_path):
    with pytest.raises(SyntaxError) as raised:
        load(tmp_path, HEAD + f"    {body}\n")
    assert not isinstance(raised.value, hal.HalError)


@pytest.mark.parametrize(
    "condition",
    ["0 < (n & 3) < 3", "0 < (n & 3)  < 3", "(0 < ( n & 3 )< 3)", "n & 1 == 1", "0 < n == (n & 3)",
     "(0 <\n    (n & 3)\n    < 3)", "0 < (\n  n &\n  3\n\n) < 3"],
)  # fmt: skip
def test_bits_may_be_compared(condition, tmp_path):
    text = f"""
@hal.kernel
def f(y: hal.Ptr[hal.bool_]) -> None:
    n = hal.global_idx(0)
    y[n] = {condition}
"""
    y = [False] * 6
    run_on_lists.run(load(tmp_path, IMPORTS + text).f.lower(), [y], threads=6)
    assert y == [eval(condition, {"n": n}) for n in range(6)]

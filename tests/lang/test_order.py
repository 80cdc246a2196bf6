"""Parts of a statement are evaluated in Python's order: the same text runs as IR and as Python."""

from types import SimpleNamespace

import pytest
import run_on_lists
from kernel_files import IMPORTS, load

from hal_kernel.ir.verify import verify

HEAD = (
    IMPORTS
    + """
@hal.func
def bump(p, i, v):
    return hal.atomic_add(p, i, v)


@hal.kernel
def f(y: hal.Ptr[hal.int32], h: hal.Ptr[hal.float16], n: hal.int32):
    a = hal.int32(n)
    a += 0
"""
)

# `bump` changes memory that another part of the statement reads.
BODIES = [
    "y[bump(y, 0, 1)] = y[0] + 7", "y[bump(y, 0, 1)] = 1 if y[0] == 0 else 2",
    "y[bump(y, 0, 1)] = bump(y, 0, 1) * 10 + y[0]", "y[bump(y, 0, 1)] += y[0] * 10",
    "y[bump(y, 0, 1)] //= bump(y, 0, 3) + 1", "y[1] += bump(y, 1, 5)",
    "y[y[0]] -= bump(y, 0, 1) + y[0]", "a += bump(y, 2, 4) + y[2]",
    "y[3] = y[2] - bump(y, 2, 1) * y[2]", "y[3] = 1 if y[1] < bump(y, 1, 5) + 1 < y[1] else 2",
    "y[3] = max(y[2], bump(y, 2, 9), y[2])", "bump(y, bump(y, 0, 2), y[0])",
    "h[bump(y, 0, 1)] = h[y[0] + 1] + 2", "h[bump(y, 0, 1)] += h[y[0] + 1] + 2",
]  # fmt: skip


def atomic_add(p, i, v):
    old = p[i]
    p[i] += v
    return old


@pytest.mark.parametrize("body", BODIES)
def test_parts_are_evaluated_in_the_order_of_python(body, tmp_path):
    text = f"{HEAD}    {body}\n    y[5] = a\n"
    kernel = load(tmp_path, text).f.lower()
    verify(kernel)
    names = {"hal": SimpleNamespace(
        Ptr={"int32": None, "float16": None}, int32="int32", float16="float16", math=None,
        kernel=lambda f: f, func=lambda f: f, atomic_add=atomic_add,
    )}  # fmt: skip
    plain = text.replace("import hal_core as hal\n", "").replace("hal.int32(n)", "n")
    exec(plain, names)
    lists = [[0, 11, 12, 13, 14, 15], [0.5, 1.5, 2.5, 3.5]]
    expected = [list(values) for values in lists]
    names["f"](*expected, 3)
    run_on_lists.run(kernel, [*lists, 3], 1)
    assert lists == expected

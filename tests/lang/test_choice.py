"""`a if c else b` of two bare numbers takes a dtype as one bare number would."""

import numpy as np
import pytest
from kernel_files import IMPORTS, load

import hal_core as hal
from hal_kernel.interpreter import interpret

KERNEL = """
@hal.kernel(contract=False)
def f(y: hal.Ptr[hal.{dtype}], x: hal.Ptr[hal.{dtype}], n: hal.int32) -> None:
    i = hal.global_idx(0)
    c = i < n
    y[i] = {expression}
"""
# A and B are the numbers.
EXPRESSIONS = [
    "x[i] * (A if c else B)", "(A if c else B) - x[i]",
    "x[i] * (A if c else B) + (B if x[i] > 3 else A)", "x[i] + (A if c else (B if n > 90 else A))",
    "x[i] + (A if c else B if n < 90 else x[0])", "(x[i] if c else x[1]) - (A if c else B)",
    "max(x[i], A if c else B)", "min(A if c else B, x[i], B if c else A)",
    "x[i] if x[i] < (A if c else B) else x[0]", "x[i] if (A if c else B) >= x[i] else x[0]",
    "x[0] if x[0] < x[i] <= (A if c else B) else x[i]",
    "x[i] if (B if c else A) < x[i] < A else x[0]",
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float32", "float64"])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_it_takes_the_dtype_of_the_other_operand(expression, dtype, tmp_path):
    """As if each number were cast to it."""
    a, b = ("1", "3") if "int" in dtype else ("0.1", "3")
    x = np.array([0.3, 1.7, 2, 3, 4, 5]).astype(dtype)
    results = []
    for form in ("{}", f"hal.{dtype}({{}})"):
        text = expression.replace("A", form.format(a)).replace("B", form.format(b))
        module = load(tmp_path, IMPORTS + KERNEL.format(dtype=dtype, expression=text))
        y = np.zeros_like(x)
        interpret(module.f, y, x, vals=(3,), threads=len(x), block=len(x))
        results.append(y.tolist())
    assert results[0] == results[1]


def test_the_operands_stay_in_order(tmp_path):
    text = """
@hal.kernel
def f(y: hal.Ptr[hal.int64], n: hal.int64) -> None:
    y[1] = (1 if hal.atomic_add(y, 0, 1) == n else 2) * hal.atomic_add(y, 0, 1)
"""
    y = np.zeros(2, "i8")
    interpret(load(tmp_path, IMPORTS + text).f, y, vals=(0,), threads=1)
    assert y.tolist() == [2, 1]


@pytest.mark.parametrize("expression", ["n * (0.5 if c else 1) > 0", "(1 if c else 2.5) < n"])
def test_a_number_that_the_dtype_cannot_hold_is_refused(expression, tmp_path):
    text = KERNEL.format(dtype="float32", expression=f"1.0 if {expression} else 0.0")
    with pytest.raises(hal.KernelSyntaxError, match=r"int32"):
        load(tmp_path, IMPORTS + text).f.lower()

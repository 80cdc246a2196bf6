"""Products and sums that are fused ahead of rendering."""

import numpy as np
import pytest

import hal_core as hal
from hal_kernel.interpreter import interpret
from hal_kernel.ir.contraction import contracted

Out, In = hal.Ptr[hal.float32], hal.ConstPtr[hal.float32]


@hal.kernel
def sum_of_one(y: Out, a: In, b: In, c: In):
    i = hal.thread_idx(0)
    y[i] = a[i] * b[i] + c[i]


@hal.kernel
def less_a_product(y: Out, a: In, b: In, c: In):
    i = hal.thread_idx(0)
    y[i] = c[i] - a[i] * b[i]


@hal.kernel
def product_less(y: Out, a: In, b: In, c: In):
    i = hal.thread_idx(0)
    y[i] = a[i] * b[i] - c[i]


@hal.kernel
def sum_of_two(y: Out, a: In, b: In, c: In):
    i = hal.thread_idx(0)
    y[i] = a[i] * c[i] + a[i] * b[i]


@hal.kernel
def used_twice(y: Out, a: In, b: In, c: In):
    i = hal.thread_idx(0)
    product = a[i] * b[i]
    y[i] = (product + c[i]) * product


@hal.kernel
def follows(y: Out, a: In, b: In, c: In):
    """The sum waits for the product of the variable."""
    s = a[0]
    for k in range(4):
        s = b[k] * s + a[k] * c[k]
        y[k] = s


def fused(a, b, c):
    """The product of float32 numbers is exact in float64; so is its sum, but for the last bits."""
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


EXPECTED = {
    sum_of_one: (lambda a, b, c: fused(a, b, c), 1),
    less_a_product: (lambda a, b, c: fused(-a, b, c), 1),
    product_less: (lambda a, b, c: fused(a, b, -c), 1),
    sum_of_two: (lambda a, b, c: fused(a, b, a * c), 1),
    used_twice: (lambda a, b, c: (a * b + c) * (a * b), 0),
}


@pytest.mark.parametrize("kernel", EXPECTED, ids=lambda kernel: kernel.name)
def test_a_product_is_fused_into_the_only_sum_that_takes_it(kernel):
    made = contracted(kernel.lower())
    expected, count = EXPECTED[kernel]
    assert not made.contract
    assert [node.op for node in made.uops].count("FMA") == count
    random = np.random.default_rng(0)
    a, b, c = (random.standard_normal(64).astype("f4") for _ in range(3))
    y = np.zeros(64, "f4")
    interpret(made, y, a, b, c, grid=1, block=64)
    np.testing.assert_array_equal(y, [expected(*numbers) for numbers in zip(a, b, c, strict=True)])


def test_the_product_of_a_variable_is_the_one_that_is_fused():
    made = contracted(follows.lower())
    (node,) = [node for node in made.uops if node.op == "FMA"]
    assert any(source.op == "GET" for source in node.src[:2])
    assert node.src[2].op == "MUL"

"""Math functions are formulas on the CPU: float64 arguments far from zero among others."""

import numpy as np
import pytest
from builder import Builder

from hal_core.dtypes import float64


@pytest.fixture(scope="module")
def llvm(llvm):
    features = llvm.features()
    if not (features.get("fma") or features.get("neon")):
        pytest.skip("this processor has no fused multiply-add")
    return llvm


def kernel_of(op, dtype):
    b = Builder("k", f"r: {dtype.name}*, x: const {dtype.name}*")
    i = b.index()
    b.store("r", i, b.op(op, b.load("x", i)))
    return b.kernel()


@pytest.mark.parametrize("op", ["SIN", "COS", "TAN"])
def test_far_numbers_among_others(llvm, op):
    """In any element of a vector, and beside each other."""
    random = np.random.default_rng(1)
    x = random.uniform(-9, 9, 4096)
    far = random.random(4096) < 0.02
    x[far] = random.choice([1e9, -(2.0**27), 2.0**27, 1e300, -1e22, np.inf, np.nan], far.sum())
    x[1000:1032] = 5e15
    got = np.zeros_like(x)
    llvm.run(kernel_of(op, float64), {"r": got, "x": x}, (16, 1, 1), (256, 1, 1))
    with np.errstate(invalid="ignore"):
        exact = {"SIN": np.sin, "COS": np.cos, "TAN": np.tan}[op](x.astype(np.longdouble))
    known = np.isfinite(x)
    assert np.isnan(got[~known]).all()
    np.testing.assert_array_max_ulp(got[known], exact[known].astype(float), 3)


def test_remainders_of_far_numbers_among_others(llvm):
    b = Builder("k", "r: float64*, x: const float64*, y: const float64*")
    i = b.index()
    b.store("r", i, b.op("FMOD", b.load("x", i), b.load("y", i)))
    random = np.random.default_rng(1)
    some = np.array([0.0, -0.0, 5e-324, -1e-310, 1.5, 9.0, 2.0**53, -1e300, np.inf, np.nan])
    x, y = (
        np.where(random.random(4096) < 0.05, random.choice(some, 4096), random.normal(0, 9, 4096))
        for _ in "xy"
    )
    got = np.zeros_like(x)
    llvm.run(b.kernel(), {"r": got, "x": x, "y": y}, (16, 1, 1), (256, 1, 1))
    with np.errstate(invalid="ignore"):
        expected = np.fmod(x, y)
    np.testing.assert_array_equal(got, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(expected)[known])


def test_two_far_functions_of_one_kernel(llvm):
    b = Builder("both", "r: float64*, x: const float64*")
    i = b.index()
    x = b.load("x", i)
    b.store("r", i, b.op("DIV", b.op("SIN", x), b.op("COS", x)))
    x, got = np.array([1e10, 1.0, 2e10, 0.5]), np.zeros(4)
    llvm.run(b.kernel(), {"r": got, "x": x}, (1, 1, 1), (4, 1, 1))
    np.testing.assert_allclose(got, np.tan(x), rtol=1e-14)

"""Make kernels of math functions, with the error bounds that they must keep."""

from __future__ import annotations

from functools import cache

import numpy as np

import hal_core as hal
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.lang.function import KernelFunction
from hal_testing.conformance import edges
from hal_testing.conformance.language import Sample

# mypy: disable-error-code="valid-type, no-untyped-call, arg-type, var-annotated"


@cache
def math_functions(dtype: hal.DType) -> KernelFunction:
    @hal.kernel
    def functions(
        y: hal.Ptr[dtype], a: hal.ConstPtr[dtype], b: hal.ConstPtr[dtype], n: hal.int32
    ) -> None:
        i = hal.global_idx(0)
        if i < n:
            p, q = a[i], b[i]
            y[i] = hal.exp(p)
            y[n + i] = hal.exp2(p)
            y[2 * n + i] = hal.log(p)
            y[3 * n + i] = hal.log2(p)
            y[4 * n + i] = hal.rsqrt(p)
            y[5 * n + i] = hal.sin(p)
            y[6 * n + i] = hal.cos(p)
            y[7 * n + i] = hal.tan(p)
            y[8 * n + i] = hal.tanh(p)
            y[9 * n + i] = hal.atan(p)
            y[10 * n + i] = hal.atan2(p, q)
            y[11 * n + i] = hal.pow(p, q)

    return functions


# The bounds of the rows above, in units in the last place. Source: OpenCL C, relative error in the
# full profile, plus one unit for the interpreter's own rounding.
MATH_ULPS = (4, 4, 4, 4, 3, 5, 5, 6, 6, 6, 7, 17)


@cache
def derived_functions(dtype: hal.DType) -> KernelFunction:
    """Make a kernel of the functions that the front end writes out as arithmetic."""

    @hal.kernel
    def functions(
        y: hal.Ptr[dtype], a: hal.ConstPtr[dtype], b: hal.ConstPtr[dtype], n: hal.int32
    ) -> None:
        i = hal.global_idx(0)
        if i < n:
            p, q = a[i], b[i]
            y[i] = hal.acos(p)
            y[n + i] = hal.acosh(p)
            y[2 * n + i] = hal.asin(p)
            y[3 * n + i] = hal.asinh(p)
            y[4 * n + i] = hal.atanh(p)
            y[5 * n + i] = hal.cosh(p)
            y[6 * n + i] = hal.erf(p)
            y[7 * n + i] = hal.erfc(p)
            y[8 * n + i] = hal.expm1(p)
            y[9 * n + i] = hal.log10(p)
            y[10 * n + i] = hal.log1p(p)
            y[11 * n + i] = hal.sinh(p)
            y[12 * n + i] = hal.hypot(p, q)
            y[13 * n + i] = hal.copysign(p, q)

    return functions


@cache
def bit_functions(dtype: hal.DType) -> KernelFunction:
    @hal.kernel
    def functions(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype], n: hal.int32) -> None:
        i = hal.global_idx(0)
        if i < n:
            y[i] = hal.popcount(x[i])
            y[n + i] = hal.clz(x[i])
            y[2 * n + i] = hal.ctz(x[i])

    return functions


# These differ by what OpenCL allows for divisions and square roots, and by contraction; copysign,
# the last row, is exact.
DERIVED_ULPS = (*[8] * 13, 0)


def sample_of_math(dtype: hal.DType) -> Sample:
    return _sample(math_functions(dtype), dtype, MATH_ULPS)


def sample_of_derived(dtype: hal.DType) -> Sample:
    return _sample(derived_functions(dtype), dtype, DERIVED_ULPS)


def _sample(kernel: KernelFunction, dtype: hal.DType, bounds: tuple[int, ...]) -> Sample:
    random = np.random.default_rng(7)
    # Large angles show a reduction that loses digits; small ones a formula that cancels.
    spread = random.uniform(-1, 1, 300) * 10.0 ** random.uniform(-3, 6, 300)
    near = random.uniform(-20, 20, 300)
    # Zeros, signs, poles and NaN have exact results, whatever the bound is.
    special = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, np.inf, -np.inf, np.nan]
    a, b = edges.pairs(np.array(special))
    a = np.concatenate([a, spread, near, np.abs(near)]).astype(stored_as(dtype))
    b = np.concatenate([b, near, spread, random.uniform(-9, 9, 300)]).astype(stored_as(dtype))
    n = len(a)
    y = np.zeros(len(bounds) * n, stored_as(dtype))
    ulps = np.repeat(np.array(bounds), n)
    return Sample(kernel, [y, a, b], (n,), {"threads": n}, {0: ulps})


def sample_of_bits(dtype: hal.DType) -> Sample:
    x = edges.integers(dtype)
    y = np.zeros(3 * len(x), stored_as(dtype))
    return Sample(bit_functions(dtype), [y, x], (len(x),), {"threads": len(x)})

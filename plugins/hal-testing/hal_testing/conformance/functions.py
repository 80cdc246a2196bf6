"""Make kernels of math functions, with the error bounds that they must keep."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import hal_core as hal
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.lang.function import KernelFunction
from hal_testing.conformance import edges
from hal_testing.conformance.language import Sample

# mypy: disable-error-code="valid-type, no-untyped-call, arg-type, var-annotated"

Function = Callable[..., Any]  # that kernels call

# Functions of one number, and of two, with their bounds in units in the last place. Source: OpenCL
# C, relative error in the full profile, plus one unit for the interpreter's own rounding.
MATH = (
    {
        hal.exp: 4, hal.exp2: 4, hal.log: 4, hal.log2: 4, hal.rsqrt: 3, hal.sin: 5, hal.cos: 5,
        hal.tan: 6, hal.tanh: 6, hal.atan: 6,
    },
    {hal.atan2: 7, hal.pow: 17},
)  # fmt: skip

# The front end writes these out as arithmetic. They differ by what OpenCL allows for divisions and
# square roots, and by contraction; copysign is exact.
DERIVED = (
    dict.fromkeys(
        (hal.acos, hal.acosh, hal.asin, hal.asinh, hal.atanh, hal.cosh, hal.erf, hal.erfc,
         hal.expm1, hal.log10, hal.log1p, hal.sinh),
        8,
    ),
    {hal.hypot: 8, hal.copysign: 0},
)  # fmt: skip

BITS = hal.popcount, hal.clz, hal.ctz


@cache
def functions_of(
    dtype: hal.DType, one: tuple[Function, ...], two: tuple[Function, ...]
) -> KernelFunction:
    """Make a kernel that writes a row of results for each function of one number, and of two."""

    @hal.kernel
    def functions(
        y: hal.Ptr[dtype], a: hal.ConstPtr[dtype], b: hal.ConstPtr[dtype], n: hal.int32
    ) -> None:
        i = hal.global_idx(0)
        if i < n:
            p, q = a[i], b[i]
            for k in hal.unroll(len(one)):
                y[k * n + i] = one[k](p)
            for k in hal.unroll(len(two)):
                y[(len(one) + k) * n + i] = two[k](p, q)

    return functions


def sample_of_math(dtype: hal.DType) -> Sample:
    return _sample(dtype, *MATH)


def sample_of_derived(dtype: hal.DType) -> Sample:
    return _sample(dtype, *DERIVED)


def _sample(dtype: hal.DType, one: dict[Function, int], two: dict[Function, int]) -> Sample:
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
    ulps = np.repeat([*one.values(), *two.values()], n)
    y = np.zeros(len(ulps), stored_as(dtype))
    kernel = functions_of(dtype, tuple(one), tuple(two))
    return Sample(kernel, [y, a, b], (n,), {"threads": n}, {0: ulps})


def sample_of_bits(dtype: hal.DType) -> Sample:
    x = edges.integers(dtype)
    y = np.zeros(len(BITS) * len(x), stored_as(dtype))
    return Sample(functions_of(dtype, BITS, ()), [y, x, x], (len(x),), {"threads": len(x)})

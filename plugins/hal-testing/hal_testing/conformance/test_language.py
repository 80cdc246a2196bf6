"""Test the kernel language, P7: devices compute what the reference interpreter computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hal_core as hal
from hal_core.dtypes import DTYPES
from hal_testing.conformance.differential import check
from hal_testing.conformance.functions import sample_of_bits, sample_of_derived, sample_of_math
from hal_testing.conformance.language import SAMPLES, Sample, sample

INTEGERS = [dtype for dtype in DTYPES.values() if dtype.is_integer]
# The functions' values in float64, in the order of the samples' rows.
EXACT: dict[Callable[..., Sample], Callable[..., list[Any]]] = {
    sample_of_math: lambda p, q: [
        np.exp(p), np.exp2(p), np.log(p), np.log2(p), 1 / np.sqrt(p), np.sin(p), np.cos(p),
        np.tan(p), np.tanh(p), np.arctan(p), np.arctan2(p, q), np.power(p, q),
    ],
    sample_of_derived: lambda p, q: [
        np.arccos(p), np.arccosh(p), np.arcsin(p), np.arcsinh(p), np.arctanh(p), np.cosh(p),
        [*map(math.erf, p)], [*map(math.erfc, p)], np.expm1(p), np.log10(p), np.log1p(p),
        np.sinh(p), np.hypot(p, q), np.copysign(p, q),
    ],
}  # fmt: skip


class TestLanguage:
    @pytest.mark.parametrize("name", SAMPLES)
    def test_P7_as_the_interpreter(self, device: hal.Compiled, name: str) -> None:
        """Compare samples: shared memory, barriers, atomics, loops, branches and functions."""
        check(device, sample(name))

    @pytest.mark.parametrize("dtype", [hal.float32, hal.float64], ids=str)
    def test_P7_math_functions(self, device: hal.Compiled, dtype: hal.DType) -> None:
        """Compare within OpenCL's bounds, for zeros, infinities, NaN and large angles too."""
        check(device, sample_of_math(dtype))

    @pytest.mark.parametrize("dtype", [hal.float32, hal.float64], ids=str)
    def test_P7_functions_made_of_others(self, device: hal.Compiled, dtype: hal.DType) -> None:
        """Compare functions that are written out as arithmetic; devices differ in rounding only."""
        check(device, sample_of_derived(dtype))

    @pytest.mark.parametrize("dtype", INTEGERS, ids=str)
    def test_P7_bit_functions(self, device: hal.Compiled, dtype: hal.DType) -> None:
        check(device, sample_of_bits(dtype))

    @pytest.mark.parametrize("made", [sample_of_math, sample_of_derived])
    def test_P7_the_interpreter_is_right_itself(self, made: Callable[..., Sample]) -> None:
        """Compare the interpreter with numpy in twice the width: both cannot share a mistake."""
        from hal_kernel.interpreter import interpret

        sample = made(hal.float32)
        got, a, b = (array.copy() for array in sample.arrays)
        interpret(sample.kernel, got, a, b, vals=sample.vals, **sample.launch)
        with np.errstate(all="ignore"):
            exact = EXACT[made](a.astype(np.float64), b.astype(np.float64))
            expected = np.concatenate(exact).astype(np.float32)
            assert expected.shape == got.shape
            unit = np.spacing(np.maximum(np.abs(expected), np.finfo(np.float32).tiny))
            # Units of float32, which float64 is exact enough to judge.
            near = np.abs(got - expected) <= 4 * unit
        assert (near | (got == expected) | (np.isnan(got) & np.isnan(expected))).all()

"""Test the kernel language, P7: devices compute what the reference interpreter computes."""

from __future__ import annotations

import pytest

import hal_core as hal
from hal_core.dtypes import DTYPES
from hal_testing.conformance.differential import check
from hal_testing.conformance.functions import sample_of_bits, sample_of_derived, sample_of_math
from hal_testing.conformance.language import SAMPLES, sample

INTEGERS = [dtype for dtype in DTYPES.values() if dtype.is_integer]


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

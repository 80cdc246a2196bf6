"""The kernel language, P7: what a kernel gives is what the reference interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest

import hal_core as hal
from hal_core.testing.conformance.arithmetic import MATH_ULPS, sample_of_math
from hal_core.testing.conformance.differential import check
from hal_core.testing.conformance.language import SAMPLES, sample


class TestLanguage:
    @pytest.mark.parametrize("name", SAMPLES)
    def test_P7_as_the_interpreter(self, device: hal.Compiled, name: str) -> None:
        """Shared memory, barriers, atomics, loops, branches and functions."""
        check(device, sample(name))

    @pytest.mark.parametrize("dtype", [hal.float32, hal.float64], ids=str)
    def test_P7_math_functions(self, device: hal.Compiled, dtype: hal.DType) -> None:
        """Within OpenCL's bounds, whatever the argument: zeros, infinities, NaN, large angles."""
        check(device, sample_of_math(dtype))

    def test_P7_the_interpreter_is_right_itself(self) -> None:
        """Beside numpy in twice the width, so that two do not share one mistake."""
        made = sample_of_math(hal.float32)
        from hal_core.testing.interpreter import interpret

        got, a, b = (array.copy() for array in made.arrays)
        interpret(made.kernel, got, a, b, vals=made.vals, **made.launch)
        with np.errstate(all="ignore"):
            p, q = a.astype(np.float64), b.astype(np.float64)
            exact = [
                np.exp(p), np.exp2(p), np.log(p), np.log2(p), 1 / np.sqrt(p), np.sin(p), np.cos(p),
                np.tan(p), np.tanh(p), np.arctan(p), np.arctan2(p, q), np.power(p, q),
            ]  # fmt: skip
            assert len(exact) == len(MATH_ULPS)
            expected = np.concatenate(exact).astype(np.float32)
            unit = np.spacing(np.maximum(np.abs(expected), np.finfo(np.float32).tiny))
            near = np.abs(got - expected) <= 2 * unit
        assert (near | (got == expected) | (np.isnan(got) & np.isnan(expected))).all()

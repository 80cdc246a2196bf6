"""What only this backend promises."""

import subprocess
import sys

import numpy as np
import pytest
from hal_kernel.interpreter import interpret
from hal_testing.conformance.arithmetic import sample_of_operations
from hal_testing.conformance.edges import is_right
from hal_testing.conformance.functions import MATH, sample_of_derived, sample_of_math

import hal_core as hal

FMA = 12  # its place in what the kernel computes
POW = sum(map(len, MATH)) - 1  # the last of them
# Where digits are saved by (x + large) - large: asinh, atanh, cosh, erf, erfc, expm1, log1p, sinh.
REASSOCIATED = {3, 4, 5, 6, 7, 8, 10, 11}


@pytest.fixture
def device():
    try:
        return hal.Device["WGPU"]
    except hal.HalError as error:
        pytest.skip(f"no adapter: {error}")


def test_importing_the_plugin_loads_no_driver():
    code = "import hal_wgpu, sys; print([m for m in sys.modules if 'wgpu.' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("sample", "wrong"),
    [
        (sample_of_operations(hal.float32), {FMA}),
        (sample_of_math(hal.float32), {POW}),
        (sample_of_derived(hal.float32), REASSOCIATED),
    ],
    ids=["operations", "functions", "derived"],
)
def test_all_but_these_are_right(device, sample, wrong):
    """Of the tests in known-gaps.txt: fma, pow and so on are what is wrong, and nothing else."""
    made = [hal.Buffer.from_numpy(array, device) for array in sample.arrays]
    device.compile(sample.kernel)(*made, vals=sample.vals, **sample.launch)
    expected = [array.copy() for array in sample.arrays]
    interpret(sample.kernel, *expected, vals=sample.vals, **sample.launch)
    right = is_right(made[0].numpy(), expected[0], hal.float32, sample.ulps.get(0, 0))
    each = right.reshape(-1, len(sample.arrays[1])).all(axis=1)
    assert set(np.flatnonzero(~each).tolist()) == wrong


def test_neighbours_in_a_word_do_not_disturb_each_other(device):
    @hal.kernel
    def mark(y: hal.Ptr[hal.uint8], n: hal.int32) -> None:
        i = hal.global_idx(0)
        if i < n and i % 3 != 1:
            y[i] = hal.uint8(i)

    base = hal.Buffer.from_numpy(np.full(1000, 255, np.uint8), device)
    device.compile(mark)(base.view(997, offset=1), vals=(997,), threads=997)
    numbers = np.arange(997) & 255
    inside = np.where(np.arange(997) % 3 == 1, 255, numbers)
    np.testing.assert_array_equal(base.numpy(), [255, *inside, 255, 255])


def test_a_dtype_that_webgpu_lacks_is_refused_by_name(device):
    @hal.kernel
    def wide(y: hal.Ptr[hal.int64]) -> None:
        y[0] = 1

    with pytest.raises(hal.Unsupported, match="int64"):
        device.compile(wide)

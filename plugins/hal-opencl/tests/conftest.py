"""Fixtures: an OpenCL device, and kernels in the convention of the core's renderer."""

import os
import sys
from pathlib import Path

import pytest

import hal_core as hal
from hal_core import config
from hal_opencl import plugin

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests"))

from own_cache import *  # noqa: F403
from slices import pytest_itemcollected  # noqa: F401

SAXPY = """
__kernel void saxpy(__global float *y, __global const float *x, float a, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


@pytest.fixture(scope="module")
def device(own_cache):
    """Open an OpenCL device: the first, or the one that HAL_TEST_OPENCL names."""
    if "OPENCL" not in hal.Device:  # run from a checkout
        hal.Device.register_plugin("OPENCL", plugin)
    try:
        opened = hal.Device[os.environ.get("HAL_TEST_OPENCL", "OPENCL")]
    except hal.DeviceUnavailable as error:
        if "OPENCL" in config.REQUIRE.read():
            raise
        pytest.skip(str(error))
    yield opened
    opened.close()


@pytest.fixture
def hardware(device):
    """A device that runs kernels in threads of its own, not in the thread that calls."""
    if "oclgrind" in device.info.vendor["platform"].lower():
        pytest.skip("Oclgrind runs kernels in the calling thread, and hangs when two call")
    return device


@pytest.fixture
def saxpy(device):
    signature = "y: float32*, x: const float32*, a: float32, n: int32"
    return device.compile(hal.Source("saxpy", SAXPY, signature, language="opencl"))


@pytest.fixture
def vendor_error():
    """Make an exception of PyOpenCL: `vendor_error("clFinish", "OUT_OF_RESOURCES")`."""
    from hal_opencl import driver

    def make(routine, name):
        code = getattr(driver.cl.status_code, name)
        return driver.cl.Error(driver.inner._ErrorRecord(msg="", code=code, routine=routine))

    return make

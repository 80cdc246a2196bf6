"""The conformance kit, on one device of a platform."""

import os

import pytest

import hal_core as hal
from hal_testing.conformance import *  # noqa: F403
from hal_testing.plugin import External, device  # noqa: F401  # it is closed by some


@pytest.fixture(scope="session")
def hal_device_name(own_cache):
    return hal.Device.canonicalize(os.environ.get("HAL_TEST_OPENCL", "OPENCL"))


@pytest.fixture
def hal_external(device):  # noqa: F811
    """A cl_mem that PyOpenCL made, in the device's context."""
    import pyopencl as cl

    zeros, flags = bytes(64), cl.mem_flags
    memory = cl.Buffer(device.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=zeros)

    def content():
        data = bytearray(64)
        cl.enqueue_copy(device.commands, data, memory)
        return bytes(data)

    return External(memory.int_ptr, 64, content)

"""The conformance kit, on Metal."""

import pytest
from metal_software import SYSTEM

from hal_testing.conformance import *  # noqa: F403
from hal_testing.kit.abilities import nothing_to_try
from hal_testing.plugin import External, device  # noqa: F401  # it is closed by some


@pytest.fixture(scope="session")
def hal_device_name(own_cache):
    return "METAL"


@pytest.fixture
def hal_external(device):  # noqa: F811
    """An MTLBuffer that Metal made."""
    import objc

    buffer = device.hardware.newBufferWithLength_options_(64, 0)
    buffer.contents().as_buffer(64)[:] = bytes(64)

    def content():
        return bytes(buffer.contents().as_buffer(64))

    return External(objc.pyobjc_id(buffer), 64, content)


@pytest.fixture
def hal_fault(request):
    """Let the next command buffer that does anything fail."""
    if SYSTEM:
        nothing_to_try("override the fixture hal_fault: no GPU can be made to fail")
    control = request.getfixturevalue("control")

    def arm(program):
        control.faults.append(control.Fault(3, "Caused GPU Address Fault Error"))

    return arm

"""The conformance kit; `nox -s conformance` runs it as users do."""

import pytest
from external import hal_external  # noqa: F401  # pytest finds it here
from runtime_control import SYSTEM

import hal_core as hal
from hal_testing.conformance import *  # noqa: F403
from hal_testing.kit.abilities import nothing_to_try

ILLEGAL_ADDRESS = 700


@pytest.fixture(scope="session")
def hal_device_name(library):
    return hal.Device.canonicalize("HIP")


@pytest.fixture
def hal_fault(request):
    """Let the runtime accept a launch whose kernel faults."""
    if SYSTEM:
        nothing_to_try("a fault on a real GPU takes the process along")
    runtime = request.getfixturevalue("runtime")
    return lambda program: runtime.fail("run", ILLEGAL_ADDRESS)

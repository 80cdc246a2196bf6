"""The conformance kit; `nox -s conformance` runs it with both compilers and both transports."""

import pytest
from external import hal_external  # noqa: F401  # pytest finds it here
from simulator import SYSTEM

import hal_core as hal
from hal_testing.conformance import *  # noqa: F403
from hal_testing.kit.abilities import nothing_to_try

ILLEGAL_ADDRESS = 700


@pytest.fixture(scope="session")
def hal_device_name(own_cache):
    return hal.Device.canonicalize("CUDA")


@pytest.fixture
def hal_fault(request):
    """Let the driver accept a launch whose kernel faults."""
    if SYSTEM:
        nothing_to_try("a fault on a real GPU takes the process along; test_process.py has them")
    simulator = request.getfixturevalue("simulator")
    return lambda program: simulator.fail("run", ILLEGAL_ADDRESS)

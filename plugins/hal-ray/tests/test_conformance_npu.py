"""The conformance kit on a simulated accelerator of a node, whose chip fails on request."""

import pytest
from on_nodes import fail_there, named

from hal_testing.conformance import *  # noqa: F403
from hal_testing.plugin import device, second_device  # noqa: F401  # it is closed by some


@pytest.fixture(scope="session")
def hal_device_name(cluster):
    return named("NPU", "head")


@pytest.fixture
def hal_fault():
    """Make a program's next launch fail late."""
    return lambda program: fail_there(program.device)

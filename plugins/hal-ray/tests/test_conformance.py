"""The conformance kit, on the processor of a node."""

import pytest
from on_nodes import named

from hal_testing.conformance import *  # noqa: F403
from hal_testing.plugin import device, second_device  # noqa: F401  # it is closed by some


@pytest.fixture(scope="session")
def hal_device_name(cluster):
    return named("CPU", "head")

"""The conformance kit on PYTHON, the interpreter of hal-kernel."""

import pytest

from hal_testing.conformance import *  # noqa: F403


@pytest.fixture(autouse=True)
def own_cache():
    """Do without the cache of each test: the kit has its own, and undoes its patches first."""


@pytest.fixture(scope="session")
def hal_device_name(registered):
    return "PYTHON"

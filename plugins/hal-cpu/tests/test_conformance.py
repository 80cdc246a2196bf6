"""What every backend must keep, with the compiler that serves; `nox -s conformance` asks all."""

from __future__ import annotations

import pytest

import hal_core as hal
from hal_core.testing.conformance import *  # noqa: F403
from hal_core.testing.plugin import device  # noqa: F401  # it is closed by some


@pytest.fixture(scope="session")
def hal_device_name(own_cache: None) -> str:
    return hal.Device.canonicalize("CPU")

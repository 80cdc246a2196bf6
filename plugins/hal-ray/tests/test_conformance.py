"""The conformance kit, on the processor of a node."""

from __future__ import annotations

from typing import Any

import pytest

import hal_core as hal
from hal_testing.conformance import *  # noqa: F403
from hal_testing.plugin import device, second_device  # noqa: F401  # it is closed by some


@pytest.fixture(scope="session")
def hal_device_name(cluster: Any) -> str:
    [name] = [
        info.name
        for info in hal.Device.devices("RAY")
        if (info.vendor["device"], info.vendor["node"]) == ("CPU", "head")
    ]
    return name

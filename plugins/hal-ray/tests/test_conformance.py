"""The conformance kit, on the processor of a node."""

from __future__ import annotations

from typing import Any

import pytest

from hal_core.testing.conformance import *  # noqa: F403
from hal_core.testing.plugin import device, second_device  # noqa: F401  # it is closed by some


@pytest.fixture(scope="session")
def hal_device_name(cluster: Any) -> str:
    return "RAY"

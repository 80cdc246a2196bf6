"""The conformance kit on a simulated accelerator of a node, whose chip fails on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from on_nodes import fail_there, named

import hal_core as hal
from hal_testing.conformance import *  # noqa: F403
from hal_testing.plugin import device, second_device  # noqa: F401  # it is closed by some


@pytest.fixture(scope="session")
def hal_device_name(cluster: Any) -> str:
    return named("NPU", "head")


@pytest.fixture
def hal_fault() -> Callable[[hal.Program], None]:
    """Make a program's next launch fail late."""
    return lambda program: fail_there(program.device)

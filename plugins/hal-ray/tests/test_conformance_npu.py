"""The conformance kit on a simulated accelerator of a node, whose chip fails on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hal_core as hal
from hal_testing.conformance import *  # noqa: F403
from hal_testing.plugin import device, second_device  # noqa: F401  # it is closed by some


@pytest.fixture(scope="session")
def hal_device_name(cluster: Any) -> str:
    [name, *_] = [info.name for info in hal.Device.devices("RAY") if "NPU" in info.title]
    return name


@pytest.fixture
def hal_fault() -> Callable[[hal.Program], None]:
    """Make a program's next launch fail late, on the chip of its node."""

    def fail(host: Any) -> None:  # in here, or the actor would import this file
        host._device.chip.fail("run")

    def fault(program: Any) -> None:
        connection = program.device.connection
        connection.ray.get(connection.actor.__ray_call__.remote(fail))

    return fault

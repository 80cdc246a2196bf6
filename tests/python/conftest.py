"""The device PYTHON, in a checkout whose installation is older than its entry point too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hal_core as hal
from hal_kernel.python import plugin
from hal_kernel.python.device import PythonDevice


@pytest.fixture(scope="session", autouse=True)
def registered() -> None:
    if "PYTHON" not in hal.Device:
        hal.Device.register_plugin("PYTHON", plugin)


@pytest.fixture
def python() -> Iterator[PythonDevice]:
    device = hal.Device["PYTHON"]
    assert isinstance(device, PythonDevice)
    yield device
    device.close()


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.alone)

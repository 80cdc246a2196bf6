"""The helpers of this folder are imported by name."""

import sys
from functools import partial
from pathlib import Path

import pytest

import hal_core as hal
from hal_core.device.names import KNOWN

sys.path.insert(0, str(Path(__file__).parent))


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.alone)
    item.add_marker(pytest.mark.syntax)
    item.add_marker(pytest.mark.quick)


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch):
    for name in ("HAL_DEVICE", "HAL_PLUGINS", "HAL_DISABLE", "HAL_PREFER", "ACC", "CL", *KNOWN):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def as_hal_device(monkeypatch):
    """Let plugins find a registry of the test's as `hal.Device`."""
    return partial(monkeypatch.setattr, hal, "Device")

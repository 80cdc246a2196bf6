"""The device PYTHON, in a checkout whose installation is older than its entry point too."""

import pytest

import hal_core as hal
from hal_kernel.python import plugin
from hal_kernel.python.device import PythonDevice


@pytest.fixture(scope="session", autouse=True)
def registered():
    if "PYTHON" not in hal.Device:
        hal.Device.register_plugin("PYTHON", plugin)


@pytest.fixture
def python():
    device = hal.Device["PYTHON"]
    assert isinstance(device, PythonDevice)
    yield device
    device.close()


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.alone)

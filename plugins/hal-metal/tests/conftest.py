"""Load Metal in software, where there is no Metal; open a device.

HAL_TEST_METAL=system runs the same tests on the GPU of a Mac.
"""

import sys
from pathlib import Path

import pytest

import hal_core as hal
from hal_core import config
from hal_metal import plugin

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).resolve().parents[3] / "tests"))

from metal_software import SYSTEM, WHY
from own_cache import *  # noqa: F403
from slices import pytest_itemcollected  # noqa: F401


@pytest.fixture
def device(own_cache):
    """Return an open Metal device."""
    if "METAL" not in hal.Device:  # run from a checkout
        hal.Device.register_plugin("METAL", plugin)
    if WHY:
        if "METAL" in config.REQUIRE.read():
            pytest.fail(WHY)
        pytest.skip(WHY)
    yield hal.Device["METAL"]


@pytest.fixture
def control(device):
    """Return the control of software Metal; nothing may be left behind after the test."""
    if SYSTEM:
        pytest.skip("the GPU of this machine cannot be made to fail")
    import metal_control

    metal_control.messages.clear()
    yield metal_control
    left = metal_control.aborts, metal_control.over_retained, metal_control.outside
    assert left == ([], [], [])
    metal_control.reset()

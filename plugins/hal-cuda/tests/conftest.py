"""Load the software driver of tests/simulators/cuda under the real transports; open a device.

HAL_TEST_CUDA=system runs the same tests on the machine's own driver and GPUs.
"""

import contextlib
import ctypes
import os
import sys
from pathlib import Path

import pytest

import hal_core as hal
from hal_core import config
from hal_cuda import nvrtc, plugin

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "simulators" / "driver"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "simulators" / "cuda"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "streams"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).resolve().parents[3] / "tests"))

import build
from own_cache import *  # noqa: F403
from simulator import SYSTEM, Simulator
from slices import pytest_itemcollected  # noqa: F401
from software_driver import *  # noqa: F403

pytest.register_assert_rewrite("each_turn")


def _software_driver():
    """Load it under the real driver's name, which the transports then find loaded already.

    It is as new as NVRTC, whose PTX an older driver would refuse.
    """
    with contextlib.suppress(hal.CompilerUnavailable):
        os.environ.setdefault("SIM_CUDA_DRIVER", "{}.{}".format(*nvrtc.find().version))
    return ctypes.CDLL(str(build.build(build.kept())), mode=ctypes.RTLD_GLOBAL)


WHY = ""
try:
    DRIVER = None if SYSTEM else _software_driver()
except build.NoCompiler as error:
    WHY = f"the software driver cannot be built: {error}"


@pytest.fixture
def device(own_cache):
    """Return an open CUDA device."""
    if "CUDA" not in hal.Device:  # run from a checkout
        hal.Device.register_plugin("CUDA", plugin)
    if WHY and "CUDA" not in config.REQUIRE.read():
        pytest.skip(WHY)
    yield hal.Device["CUDA"]


@pytest.fixture
def other(device):
    """Return another GPU."""
    if len(hal.Device.devices("CUDA")) < 2:
        pytest.skip("the machine has one GPU")
    return hal.Device["CUDA:1"]


@pytest.fixture
def simulator():
    if DRIVER is None:
        pytest.skip("the machine's own driver cannot be made to fail")
    made = Simulator(DRIVER)
    yield made
    made.clear()


@pytest.fixture
def control(simulator):
    return simulator

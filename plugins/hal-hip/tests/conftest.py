"""Load the HIP runtime of tests/simulators/hip; open a device.

HAL_TEST_HIP=system runs the same tests on the machine's own runtime and GPUs.
"""

import ctypes
import sys
from pathlib import Path

import pytest

import hal_core as hal
from hal_core import config
from hal_hip import hiprtc, plugin

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "simulators" / "driver"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "simulators" / "hip"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "streams"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).resolve().parents[3] / "tests"))

import hip_build
from own_cache import *  # noqa: F403
from runtime_control import SYSTEM, Runtime
from slices import pytest_itemcollected  # noqa: F401
from software_driver import *  # noqa: F403

pytest.register_assert_rewrite("each_turn")

WHY = ""
try:  # under the name by which the backend asks for it, which is then found loaded already
    LIBRARY = None
    if not SYSTEM:
        built = hip_build.build(hip_build.kept())
        LIBRARY = ctypes.CDLL(str(built), mode=ctypes.RTLD_GLOBAL)
except hip_build.NoCompiler as error:
    WHY = f"the software runtime cannot be built: {error}"


@pytest.fixture(scope="session")
def library(own_cache):
    """Return AMD's compiler, which must be there where HIP is required."""
    try:
        return hiprtc.find()
    except hal.CompilerUnavailable as error:
        if "HIP" in config.REQUIRE.read():
            raise
        pytest.skip(str(error))


@pytest.fixture
def device(library):
    """Return an open HIP device."""
    if "HIP" not in hal.Device:  # run from a checkout
        hal.Device.register_plugin("HIP", plugin)
    if WHY and "HIP" not in config.REQUIRE.read():
        pytest.skip(WHY)
    yield hal.Device["HIP"]


@pytest.fixture
def runtime():
    if LIBRARY is None:
        pytest.skip("the machine's own runtime cannot be made to fail")
    made = Runtime(LIBRARY)
    yield made
    made.clear()


@pytest.fixture
def control(runtime):
    return runtime

"""The conformance kit, with the compiler that serves; `nox -s conformance` runs all compilers."""

import os
import subprocess
import sys

import pytest

import hal_core as hal
from hal_testing.conformance import *  # noqa: F403
from hal_testing.plugin import device  # noqa: F401  # it is closed by some


@pytest.fixture(scope="session")
def hal_device_name(own_cache):
    return hal.Device.canonicalize("CPU")


@pytest.mark.full
def test_checked_mode_keeps_it_too():
    """Every kernel on the interpreter, over memory that is watched."""
    command = [sys.executable, "-m", "hal_core", "check", "CPU", "--require-device"]
    done = subprocess.run(
        command, env=os.environ | {"HAL_CHECK": "1"}, stdout=subprocess.PIPE, text=True, timeout=300
    )
    assert done.returncode == 0 and "CPU conforms" in done.stdout, done.stdout
    assert "its allocator honours no cache_limit" in done.stdout

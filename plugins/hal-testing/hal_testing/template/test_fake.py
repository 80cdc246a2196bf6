"""Tests of what only this backend promises."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hal_core as hal
from hal_testing.fake import chip, driver


def test_importing_the_plugin_loads_no_driver() -> None:
    code = "import hal_testing.fake, sys; print([m for m in sys.modules if 'driver' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_error_names_the_call_and_the_status() -> None:
    with pytest.raises(hal.OutOfMemory, match=r"alloc.*OUT_OF_MEMORY"):
        driver.check("alloc", chip.OUT_OF_MEMORY, "FAKE")

"""A backend of `hal_streams/` and of a third driver passes the kit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import third_backend

import hal_core as hal
from hal_streams.driver import StreamDriver

HERE = Path(__file__).parent


@pytest.fixture
def device() -> Iterator[hal.Compiled]:
    if "THIRD" not in hal.Device:
        hal.Device.register_plugin("THIRD", third_backend.plugin)
    with hal.Device["THIRD"] as opened:
        yield opened


@pytest.mark.full
def test_it_passes_the_kit(tmp_path: Path) -> None:
    for name in ("third_backend.py", "conformance.py"):
        shutil.copy(HERE / name, tmp_path)
    tests = ["-p", "no:cacheprovider", "-p", "hal_testing.plugin", "conformance.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *tests, "--hal-require-device"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONOPTIMIZE": ""},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip  # pytest would warn of -O, and warnings are errors there
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert re.search(r"3\d\d passed", done.stdout), done.stdout[-500:]


def test_a_driver_that_lacks_a_function_is_told_its_name() -> None:
    class Short(third_backend.Third):
        wait_event = StreamDriver.wait_event

    with pytest.raises(TypeError, match="wait_event"):
        Short()


def test_the_drivers_own_status_is_in_the_text(device: hal.Compiled) -> None:
    held = hal.Buffer(device, 40 << 20, hal.uint8).allocate()
    with pytest.raises(hal.OutOfMemory) as caught:
        hal.Buffer(device, 40 << 20, hal.uint8).allocate()
    said = "third_alloc failed with THIRD_5: the third driver's sentence"
    assert said in str(caught.value.__cause__)
    held.deallocate()

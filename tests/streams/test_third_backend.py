"""A backend of `hal_streams/` and of a third driver passes the kit."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import third_backend

from hal_streams.driver import StreamDriver

HERE = Path(__file__).parent


@pytest.mark.full
def test_it_passes_the_kit(tmp_path):
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


def test_a_driver_that_lacks_a_function_is_told_its_name():
    class Short(third_backend.Third):
        wait_event = StreamDriver.wait_event

    with pytest.raises(TypeError, match="wait_event"):
        Short()

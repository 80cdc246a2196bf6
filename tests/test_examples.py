"""The examples run, as a user would run them: in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HAVE_CPU = find_spec("hal_cpu") is not None or "CPU" in os.environ.get("HAL_REQUIRE", "")


@pytest.mark.skipif(not HAVE_CPU, reason="hal-cpu is not installed in this environment")
def test_saxpy_prints_the_right_numbers(tmp_path: Path) -> None:
    environment = os.environ | {"HAL_CACHE_DIR": str(tmp_path)}
    for _ in range(2):  # compiled, then taken from the cache
        done = subprocess.run(
            [sys.executable, "-W", "error", str(ROOT / "examples" / "saxpy.py")],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert re.match(r"\[1\.000e\+00 3\.000e\+00 5\.000e\+00 .* 2\.047e\+03\] ", done.stdout)

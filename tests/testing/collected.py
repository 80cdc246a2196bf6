"""Collect the kit once where this is imported: runs forked from there find its chapters read.

A run that fails one test then takes a third of the time.
"""

import contextlib
import io
import os

import pytest

os.environ |= {"HAL_MUTANT": "", "HAL_FAKE": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
with contextlib.redirect_stdout(io.StringIO()):
    pytest.main(
        [
            "-q", "--collect-only", "-c", os.devnull, "--noconftest", "-p", "no:cacheprovider",
            "-p", "hal_testing.plugin", "--pyargs", "hal_testing.conformance",
        ]
    )  # fmt: skip

"""The tests that every backend of hal-core must pass. pyproject.toml names the device.

A fixture of the kit that is defined here takes the place of the kit's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hal_testing.conformance import *  # noqa: F403


@pytest.fixture
def hal_fault() -> Callable[[Any], None]:
    """Make a program's next launch fail late, on the chip. Delete this if your driver cannot."""

    def fail(program: Any) -> None:
        program.device.chip.fail("run")

    return fail

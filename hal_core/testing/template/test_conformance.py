"""What every backend of hal-core must keep. The device is named in pyproject.toml.

A fixture of the kit that is defined here takes the place of the kit's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hal_core.testing.conformance import *  # noqa: F403


@pytest.fixture
def hal_fault() -> Callable[[Any], None]:
    """The next launch of a program fails on the chip, late. Without a way to do that: delete it."""

    def fail(program: Any) -> None:
        program.device.chip.fail("run")

    return fail

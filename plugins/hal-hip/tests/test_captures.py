"""Other libraries' captures of HIP streams."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from captures import *  # noqa: F403
from runtime_control import Runtime


@pytest.fixture
def control(runtime: Runtime) -> Runtime:
    return runtime


@pytest.fixture
def names() -> Callable[[str], str]:
    return "hip{}".format

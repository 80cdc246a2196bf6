"""Other libraries' captures of CUDA streams."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from captures import *  # noqa: F403
from simulator import Simulator


@pytest.fixture
def control(simulator: Simulator) -> Simulator:
    return simulator


@pytest.fixture
def names() -> Callable[[str], str]:
    return "cu{}".format

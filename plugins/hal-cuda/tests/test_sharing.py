"""Memory shared with libraries that work on streams of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from shared_memory import *  # noqa: F403
from simulator import Simulator

import hal_core as hal


@pytest.fixture
def shuffle(device: hal.Compiled, simulator: Simulator) -> Iterator[Callable[[int], None]]:
    """Return what sets the seed of the streams' order."""
    yield simulator.shuffle
    simulator.shuffle(0)


@pytest.fixture
def fail(simulator: Simulator) -> Callable[[str, int], None]:
    """Return what lets the next call of a function fail."""
    return lambda name, code: simulator.fail(f"cu{name}", code)


@pytest.fixture
def capture(simulator: Simulator) -> Callable[[Any], Any]:
    """Return what captures a stream as PyTorch does; a capture that was spoilt is an error."""

    @contextmanager
    def captured(stream: Any) -> Iterator[None]:
        simulator.capture(int(stream))
        yield
        assert simulator.capture() == 0

    return captured

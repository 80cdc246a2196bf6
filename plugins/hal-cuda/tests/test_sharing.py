"""Memory shared with libraries that work on streams of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from shared_memory import *  # noqa: F403
from shared_memory import held
from simulator import Simulator

import hal_core as hal
from hal_streams.sharing import Export


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


@pytest.fixture
def untouched(simulator: Simulator) -> Callable[[], bool]:
    """Return what tells whether the driver was given no handle of what is gone."""
    stale = simulator.stale()
    return lambda: simulator.stale() == stale


@pytest.mark.parametrize("way", ["hold", "take_back"])
def test_B9_memory_that_comes_back_while_the_device_closes_asks_the_driver_nothing(
    device: hal.Compiled, simulator: Simulator, way: str
) -> None:
    """A finalizer may be interrupted behind its look whether the device is open."""
    sharing, stale = device.sharing, simulator.stale()

    class Closes(deque[Any]):
        """A list whose device closes when something is added."""

        def append(self, one: object) -> None:
            device.close()
            super().append(one)

    if way == "hold":
        sharing._borrowed = Closes()
        sharing.hold(object())
    else:
        sharing._ended = Closes()
        sharing.take_back(Export(None, device.stream))
    assert simulator.stale() == stale and held(device) == 0

"""Memory shared with libraries that work on streams of their own."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from shared_memory import *  # noqa: F403
from shared_memory import held
from simulator import Simulator

import hal_core as hal
from hal_streams.sharing import Export


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

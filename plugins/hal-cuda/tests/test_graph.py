"""Graphs of the CUDA driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from graphs import *  # noqa: F403
from graphs import Calls
from simulator import Simulator

import hal_core as hal


@pytest.fixture
def shuffle(device: hal.Compiled, simulator: Simulator) -> Iterator[Callable[[int], None]]:
    """Return what sets the seed of the streams' order."""
    yield simulator.shuffle
    simulator.shuffle(0)
    device.synchronize()


@pytest.fixture
def calls(simulator: Simulator) -> Calls:
    def count(work: Callable[[], object]) -> dict[str, int]:
        before = simulator.all_calls()
        work()
        found = simulator.calls_since(before)
        return {name.removeprefix("cu"): count for name, count in found.items()}

    return count


@pytest.fixture
def live(simulator: Simulator) -> Callable[[], dict[str, int]]:
    return simulator.live

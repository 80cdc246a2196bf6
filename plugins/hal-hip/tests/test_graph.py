"""Graphs of the HIP runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from graphs import *  # noqa: F403
from graphs import Calls
from runtime_control import Runtime

import hal_core as hal


@pytest.fixture
def shuffle(device: hal.Compiled, runtime: Runtime) -> Iterator[Callable[[int], None]]:
    """Return what sets the seed of the streams' order."""
    yield runtime.shuffle
    runtime.shuffle(0)
    device.synchronize()


@pytest.fixture
def calls(runtime: Runtime) -> Calls:
    def count(work: Callable[[], object]) -> dict[str, int]:
        before = runtime.all_calls()
        work()
        found = runtime.calls_since(before)
        return {name.removeprefix("hip"): count for name, count in found.items()}

    return count


@pytest.fixture
def live(runtime: Runtime) -> Callable[[], dict[str, int]]:
    return runtime.live

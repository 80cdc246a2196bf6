"""Memory shared with libraries that work on streams of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from shared_memory import *  # noqa: F403
from shared_memory import Library, N, held
from simulator import Simulator

import hal_core as hal
from hal_core.streams.sharing import Export


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


def test_B9_a_stream_with_the_handle_of_another_one_is_not_followed(
    device: hal.Compiled, theirs: Library, simulator: Simulator
) -> None:
    passing = Library(device)
    made = hal.empty(N, hal.int32, device).fill(1)
    simulator.shuffle(1)  # nothing is done while nobody asks
    taken = passing.take(made)
    passing.fill(taken.pointer, -1)
    api, number = device.api, int(passing.stream)
    with device.own("test"):
        api.destroy_stream(passing.stream)
        for count in range(1, 100):
            streams = [api.make_stream(independent=True) for _ in range(count)]
            if number in map(int, streams):
                break
            for stream in streams:
                api.destroy_stream(stream)
        else:
            pytest.skip("the handle is not given again")
    del made, taken
    assert held(device) == 1
    device.synchronize()
    assert held(device) == 0
    made = hal.empty(N, hal.int32, device).fill(5)
    assert made.numpy().tolist() == [5] * N
    simulator.shuffle(0)
    with device.own("test"):
        for stream in streams:
            api.destroy_stream(stream)


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

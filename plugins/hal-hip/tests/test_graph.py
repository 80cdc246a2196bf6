"""Graphs of the HIP runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from any_order import SEEDS, N, twofold
from graphs import *  # noqa: F403
from graphs import Calls, ints
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


def test_G5_a_replay_comes_after_one_whose_end_could_not_be_marked(
    device: hal.Compiled, runtime: Runtime, shuffle: Callable[[int], None]
) -> None:
    x, other, y = ints(device, 3), ints(device, 5), ints(device)
    with device.capture() as graph:
        device.compile(twofold)(y, x, vals=(N,), threads=N)
    for seed in SEEDS:
        queue = device.queue()
        graph.replay(queue=queue)
        assert device.synchronize(20)
        shuffle(seed)
        runtime.fail("hipEventRecord", 999, nth=2)  # the first orders it behind the device
        failed = graph.replay(queue=queue)  # which runs
        graph.replay({x: other}, queue=device.queue())
        with pytest.raises(hal.DeviceFault, match="hipEventRecord"):
            failed.wait(20)
        shuffle(0)
        assert device.synchronize(20) and y.numpy().tolist() == [10] * N, f"seed {seed}"
        graph.replay()

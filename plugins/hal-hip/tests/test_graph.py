"""Graphs of the HIP runtime."""

import pytest
from any_order import SEEDS, N, twofold
from graphs import *  # noqa: F403
from graphs import ints

import hal_core as hal


def test_graphs_of_the_driver_are_a_capability(device):
    assert "graphs" in device.info.capabilities


def test_G5_a_replay_comes_after_one_whose_end_could_not_be_marked(device, runtime, shuffle):
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

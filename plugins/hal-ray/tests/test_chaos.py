"""Workers die at random moments: no wrong result, nothing left behind, no wait without an end.

RAY_CHAOS_SECONDS says for how long; `nox -s ray` sets a minute.
"""

import os
import random
import signal
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from on_nodes import lives, named, until

import hal_core as hal

SECONDS = float(os.environ.get("RAY_CHAOS_SECONDS", "4"))
SIZE = 4096


@hal.kernel
def mix(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = 3 * y[i] + x[(i + 1) % n]


def turn(devices, rng):
    """Mix on both devices, with copies between them; the same in numpy. Raises: DeviceFault."""
    start = [np.arange(SIZE, dtype="i4") * (one + 1) for one in range(2)]
    here = [hal.Buffer.from_numpy(start[one], devices[one]) for one in range(2)]
    there = [hal.empty(SIZE, hal.int32, device) for device in devices]
    programs = [device.compile(mix) for device in devices]
    for _ in range(rng.randrange(1, 30)):
        for one in range(2):
            there[one].copy_from(here[1 - one])
        old = [array.copy() for array in start]
        for one in range(2):
            programs[one](here[one], there[one], vals=(SIZE,), threads=SIZE)
            start[one] = 3 * old[one] + np.roll(old[1 - one], -1)
    for one in range(2):
        assert np.array_equal(here[one].numpy(), start[one]), "a wrong result, and no fault"


def kill(process):
    with suppress(ProcessLookupError):  # it has died already
        os.kill(process, signal.SIGKILL)


@pytest.mark.timeout(SECONDS + 240)
def test_workers_that_die_at_random(cluster):
    names = [named("CPU", node) for node in ("head", "node-a")]
    rng, seed = random.Random(), random.randrange(1 << 32)
    rng.seed(seed)
    processes = set()
    good = faults = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or not (good and faults):
        opened = [hal.Device[name] for name in names]
        processes |= {device.process for device in opened}
        victim = rng.choice(opened).process
        killer = threading.Timer(rng.random() * 0.5, kill, (victim,))
        begin = time.monotonic()
        if rng.random() < 0.5:
            killer.start()
        try:
            while time.monotonic() < begin + 0.6:
                turn(opened, rng)
                good += 1
        except hal.DeviceFault as fault:
            faults += 1
            assert "lost" in str(fault) or "died" in str(fault), seed
        if killer.ident is not None:
            killer.join()
            until(lambda: not lives(victim), "a signal did not end it")  # noqa: B023
        for device in opened:
            if not lives(device.process) or rng.random() < 0.2:
                try:
                    device.close()
                except hal.DeviceFault as fault:  # of its own, or of a copy from the other one
                    assert "is lost" in str(fault), seed
    for name in names:
        last = hal.Device[name]
        processes.add(last.process)
        with suppress(hal.DeviceFault):  # a copy from a device that was killed
            last.synchronize()
        assert last.statistics_there().live <= 8, f"memory is left behind; seed {seed}"
        last.close()
    until(lambda: not any(map(lives, processes)), f"actors are left behind; seed {seed}")

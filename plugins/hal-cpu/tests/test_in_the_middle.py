"""Launches in the middle of launches, of another thread or of a finalizer."""

from __future__ import annotations

import itertools
import os
import threading

import pytest

import hal_core as hal
import hal_cpu
from hal_core.testing.interrupted import Scene, everywhere
from hal_cpu.checked import guarded_memory
from hal_cpu.checked.guarded_memory import Block, Quarantine

PLACES = (os.path.dirname(hal_cpu.__file__), threading.__file__)

both = pytest.mark.parametrize("thread", [False, True], ids=["finalizer", "thread"])


@hal.kernel
def add(y: hal.Ptr[hal.int32], a: hal.int32, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + a


@both
def test_P6_a_large_launch_while_the_workers_start(
    own_device: hal.Compiled, monkeypatch: pytest.MonkeyPatch, thread: bool
) -> None:
    monkeypatch.setenv("HAL_CPU_THREADS", "3")
    monkeypatch.setattr("hal_cpu.program.SPLIT_AT_ONCE_FROM", 0)
    monkeypatch.setattr("hal_cpu.program.KEEP_GIL_BELOW", 0)
    device, sizes = own_device, itertools.count(1000)
    program = device.compile(add)

    def scene() -> Scene:
        device.pool.close()  # the next launch starts its workers anew
        ours, theirs = (hal.zeros(640, hal.int32, device) for _ in range(2))

        def launch(y: hal.Buffer) -> None:
            program(y, vals=(7, 640), threads=next(sizes), block=64)

        def check() -> None:
            for y in (ours, theirs):
                assert y.numpy().tolist() == [7] * 640
            assert len(device.pool._workers) in (2, 3), "one more than asked for, at the worst"

        return Scene(lambda: launch(ours), lambda: launch(theirs), check)

    assert everywhere(PLACES, scene, on_another_thread=thread) > 20


@both
def test_X1_two_first_uses_of_a_device_share_its_parts(
    own_device: hal.Compiled, thread: bool
) -> None:
    """Else one would not see what the other's launches use, and free it under them."""

    def scene() -> Scene:
        device = type(own_device)("CPU", own_device.info)
        seen: list[tuple[object, object]] = []

        def look() -> None:
            seen.append((device.pool, device.running))

        def check() -> None:
            (pool, running), other = seen
            assert other == (pool, running) == (device.pool, device.running)

        return Scene(look, look, check)

    assert everywhere(PLACES, scene, on_another_thread=thread) > 2


def test_X1_freed_memory_let_go_while_it_is_let_go() -> None:
    """Under HAL_CHECK=1; `_freeing` keeps other threads out, but not finalizers."""

    def scene() -> Scene:
        quarantine = Quarantine()
        for number in range(3):
            quarantine.add(Block(64, number, False, True))

        def shrink() -> None:
            quarantine.shrink(0, 0)

        def check() -> None:
            assert not quarantine._blocks and quarantine._nbytes == 0

        return Scene(shrink, shrink, check)

    assert everywhere([guarded_memory.__file__], scene) > 0

"""Launches that take long enough to be overtaken by what must not overtake them."""

from __future__ import annotations

import time

import numpy as np

import hal_core as hal
from hal_core.testing.conformance.raw import read

_THERE = 0x9E3779B1
_BACK = pow(_THERE, -1, 1 << 32)
_SECONDS = 0.004
_MOST_TURNS = 1 << 30


@hal.kernel
def count_up_slowly(
    y: hal.Ptr[hal.uint32],
    start: hal.uint32,
    there: hal.uint32,
    back: hal.uint32,
    turns: hal.int32,
    n: hal.int32,
) -> None:
    """y[i] = start + i. No compiler knows that each turn undoes what it does."""
    i = hal.global_idx(0)
    if i < n:
        x = start + hal.uint32(i)
        for _ in range(turns):
            x = (x ^ 0x55AA55AA) * there
            x = (x * back) ^ 0x55AA55AA
        y[i] = x


class SlowCounter:
    """`slow(buffer, start)` launches: the buffer's element i becomes start + i, in some 5 ms."""

    def __init__(self, device: hal.Compiled, size: int = 64, seconds: float = _SECONDS) -> None:
        self.program = device.compile(count_up_slowly)
        self.size, self.turns = size, 8
        buffer = self.buffer(device)
        self._seconds(buffer)  # what a first launch costs is no measure
        idle = self._shortest(buffer)  # nor what any launch costs
        while self._shortest(buffer) < idle + seconds and self.turns < _MOST_TURNS:
            self.turns *= 2

    def _shortest(self, buffer: hal.Buffer) -> float:
        return min(self._seconds(buffer) for _ in range(3))

    def _seconds(self, buffer: hal.Buffer) -> float:
        device = self.program.device
        device.synchronize()
        begin = time.perf_counter()
        self(buffer, 0)
        read(buffer)
        return time.perf_counter() - begin

    def __call__(self, buffer: hal.Buffer, start: int) -> None:
        self.program(buffer, vals=self._vals(start), threads=self.size)

    def timed(self, buffer: hal.Buffer) -> float:
        """Seconds of device time, as `wait=True` tells them."""
        return self.program(buffer, vals=self._vals(0), threads=self.size, wait=True)

    def _vals(self, start: int) -> tuple[int, ...]:
        return start, _THERE, _BACK, self.turns, self.size

    def buffer(self, device: hal.Compiled, spec: hal.BufferSpec | None = None) -> hal.Buffer:
        return hal.Buffer(device, self.size, hal.uint32, spec).allocate()

    def counted(self, start: int) -> bytes:
        """What a launch leaves."""
        return np.arange(start, start + self.size, dtype=np.uint32).tobytes()

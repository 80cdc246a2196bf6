"""Launches so slow that later work would overtake them if its order were wrong."""

from __future__ import annotations

import time

import numpy as np

import hal_core as hal
from hal_testing.conformance.raw import read

_THERE = 0x9E3779B1  # odd, so that it has an inverse
_BACK = pow(_THERE, -1, 1 << 32)
_SECONDS = 0.004  # much longer than a copy or a launch takes to be queued
_MAX_TURNS = 1 << 30  # the end of the search on a device that measures no time


@hal.kernel
def count_up_slowly(
    y: hal.Ptr[hal.uint32], start: hal.uint32, there: hal.uint32, back: hal.uint32,
    turns: hal.int32, n: hal.int32,
) -> None:  # fmt: skip
    """Store y[i] = start + i slowly; no compiler can tell that each turn undoes itself."""
    i = hal.global_idx(0)
    if i < n:
        x = start + hal.uint32(i)
        for _ in range(turns):
            # `there` and `back` are arguments, so that their product is unknown to the compiler.
            x = (x ^ 0x55AA55AA) * there
            x = (x * back) ^ 0x55AA55AA
        y[i] = x


class SlowCounter:
    """`slow(buffer, start)` sets the buffer's element i to start + i in a launch of some 5 ms."""

    def __init__(self, device: hal.Compiled, size: int = 64, seconds: float = _SECONDS) -> None:
        self.program = device.compile(count_up_slowly)
        self.size, self.turns = size, 8
        buffer = self.buffer(device)
        self._seconds(buffer)  # not counted: the first launch also loads and prepares
        # The cost of a launch that does nothing; pauses only add to a time.
        enough = seconds + min(self._seconds(buffer) for _ in range(3))
        while any(self._seconds(buffer) < enough for _ in range(3)) and self.turns < _MAX_TURNS:
            self.turns *= 2

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
        """Launch with `wait=True` and return the seconds of device time."""
        return self.program(buffer, vals=self._vals(0), threads=self.size, wait=True)

    def _vals(self, start: int) -> tuple[int, ...]:
        return start, _THERE, _BACK, self.turns, self.size

    def buffer(self, device: hal.Compiled, spec: hal.BufferSpec | None = None) -> hal.Buffer:
        return hal.Buffer(device, self.size, hal.uint32, spec).allocate()

    def counted(self, start: int) -> bytes:
        """Return the expected contents after a launch."""
        return np.arange(start, start + self.size, dtype=np.uint32).tobytes()

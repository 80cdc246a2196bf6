"""The clock of the CPU, for profiles."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TypeVar

from hal_core.profiling.host_clock import HostClock, Times

T = TypeVar("T")


class CPUClock(HostClock):
    """The host's own clock. Work is done when its call returns, so nothing is waited for."""

    def measure(self, work: Callable[[], T]) -> tuple[T, Times]:
        start = perf_counter_ns()
        result = work()
        times = start, perf_counter_ns()
        return result, lambda wait=True: times

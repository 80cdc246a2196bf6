"""The times of a queue's work, read from its command buffers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

from hal_core.concurrency import poll
from hal_core.profiling.host_clock import HostClock, Times
from hal_metal import driver

if TYPE_CHECKING:
    from hal_metal.device import MetalDevice

T = TypeVar("T")


class MetalClock(HostClock):
    """A clock that reads when the GPU began and ended, which Metal tells on the host's clock.

    Work that gives no command buffer, such as a copy by the host, is over when its call returns.
    """

    device: MetalDevice

    def measure(self, work: Callable[[], T]) -> tuple[T, Times]:
        before = self.device.newest()
        start = perf_counter_ns()
        result = work()
        called = start, perf_counter_ns()
        if isinstance(result, driver.Work):
            return result, self._times_of(result, called)
        if before is not None and before.done:  # the host waited for it, and then worked
            start = max(start, round(driver.passed(before)[1] * 1e9))
        return result, lambda wait=True: (min(start, called[1]), called[1])

    def _times_of(self, work: driver.Work, called: tuple[int, int]) -> Times:
        def times(wait: bool = True) -> tuple[int, ...]:
            device = self.device
            known = work.done or device.closed or device.forked
            if not (known or poll(partial(driver.is_over, work), math.inf if wait else 0)):
                return ()
            start, end = (round(seconds * 1e9) for seconds in driver.passed(work))
            return (start, end) if end else called  # a failed one has no times

        return times

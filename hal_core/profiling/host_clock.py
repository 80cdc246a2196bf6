"""When a device did a piece of work."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from hal_core.device import Compiled

T = TypeVar("T")
Times = Callable[[], tuple[int, int]]  # (start_ns, end_ns), asked for after the work is done


class HostClock:
    """The host's view: each piece of work is waited for, so that its end can be told.

    A backend whose queue has timestamps does better: see `Compiled._make_clock`.
    """

    def __init__(self, device: Compiled) -> None:
        self.device = device

    def measure(self, work: Callable[[], T]) -> tuple[T, Times]:
        """Do `work`, which queues one launch, copy or fill; its result, and what tells its time.

        Units: nanoseconds of `time.perf_counter_ns`.
        Order: `times` may be called much later, on another thread, after the device was closed;
        it waits for that work where it must, and raises nothing.
        Raises: what `work` raises.
        """
        start = perf_counter_ns()
        result = work()
        self.device._synchronize(None)
        times = start, perf_counter_ns()
        return result, lambda: times

    def stop(self) -> None:
        """No profile is open any more. What `measure` gave may still be asked, and it may be called
        again. Raises nothing."""

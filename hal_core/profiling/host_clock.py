"""Measure the time of a device's work with the host's clock."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from hal_core.device.base import Compiled

T = TypeVar("T")
Times = Callable[..., tuple[int, ...]]  # gives (start_ns, end_ns) of work that is done


class HostClock:
    """A clock for any device: it waits for each piece of work to see when that ends.

    A backend whose queue has timestamps does better: see `Compiled._make_clock`, and `SampledClock`
    of hal-streams.
    """

    def __init__(self, device: Compiled) -> None:
        self.device = device

    def measure(self, work: Callable[[], T]) -> tuple[T, Times]:
        """Call `work`, which queues one launch, copy or fill; return its result and its times.

        Units: nanoseconds of `time.perf_counter_ns`.
        Order: the times may be asked for much later, on another thread, after the device was
        closed; asking waits for that work where it must, and raises nothing. Asked with
        `wait=False`, for work in a queue, they are () while it may still have to wait for the host.
        Raises: what `work` raises.
        """
        start = perf_counter_ns()
        result = work()
        self.device._synchronize(None)
        times = start, perf_counter_ns()
        return result, lambda wait=True: times

    def stop(self) -> None:
        """Release what measuring needed, as no profile is open any more. Raises nothing.

        Order: times may still be asked for, and `measure` may be called again.
        """

"""The times of work on a node, on this process's clock."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

from hal_core.profiling.events import ProfileDeviceEvent, record
from hal_streams.sampled_clock import SampledClock, Span

if TYPE_CHECKING:
    from hal_ray.device import RayDevice

T = TypeVar("T")


class RayClock(SampledClock):
    """A clock that reads the times which the actor has noted, on its own clock.

    A sample is a question: the actor's moment is taken to be the middle of the way there and back,
    so its error is at most half of that, `error_ns`. The way of a message, from here until the
    actor has it, is an event of its own, on a device of its own: `way to NODE`.
    """

    device: RayDevice

    def __init__(self, device: RayDevice) -> None:
        super().__init__(device)
        self.error_ns = 1 << 62
        self._ran: dict[int, tuple[int, int]] = {}
        self._came: dict[int, int] = {}
        self._sample()  # so that the first sample is older than all measured work
        device.connection.arrivals = self._note_message

    def _mark(self) -> int:
        start = perf_counter_ns()
        moment: int = self.device.connection.ask("now")
        self.error_ns = min(self.error_ns, (perf_counter_ns() - start) // 2)
        return moment

    def _add_mark(self, mark: int, host_ns: int) -> None:
        self._samples.add(mark, host_ns)

    def _queue(self, work: Callable[[], T], span: Span) -> T:
        connection, number = self.device.connection, next(self.device.numbers)
        connection.measuring.number = number
        try:
            result = work()
        finally:
            taken = not connection.measuring.number
            connection.measuring.number = 0
        span.command = number if taken else None  # else its call has waited for it
        return result

    def _wait(self, command: int) -> None:
        """Do nothing: the question of `_read` is answered behind all commands."""

    def _read(self, span: Span) -> None:
        number, span.command = span.command, None
        span.passed = self._found(self._ran, number)

    def stop(self) -> None:
        """Record no messages any more."""
        self.device.connection.arrivals = None

    def _found(self, known: dict[int, Any], number: int) -> Any:
        if number not in known and self.device.connection.fault is None:
            ran, came = self.device.connection.ask("times")
            self._ran |= ran
            self._came |= came
        return known.pop(number, None)

    def _note_message(self, number: int, count: int, start_ns: int) -> None:
        """Record the way of a message."""

        def times(wait: bool = True) -> tuple[int, int]:
            with self._lock:
                came = self._found(self._came, number)
            return start_ns, start_ns if came is None else self._samples.on_host(came)

        name = f"message of {count}, its end within {self.error_ns // 1000} us"
        way = f"way to {self.device.info.vendor['node']}"
        record(ProfileDeviceEvent, "message", name, way, times)

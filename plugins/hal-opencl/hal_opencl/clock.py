"""When a queue did its work, on the host's clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

from hal_core.profiling import ClockSamples, HostClock, Times
from hal_opencl.driver import cl

if TYPE_CHECKING:
    from hal_opencl.device import OpenCLDevice

T = TypeVar("T")

_EVERY_NS = 500_000_000
_TRIES = 5
_MOST_WAITING = 4096


def _reader(event: cl.Event) -> Times:
    """Gives the device's own times. Of finished work they are taken at once, as the event of a
    blocking copy keeps the host memory."""

    def read() -> tuple[int, int]:
        event.wait()
        return event.profile.start, event.profile.end

    if event.command_execution_status != cl.command_execution_status.COMPLETE:
        return read
    times = read()
    return lambda: times


class QueueClock(HostClock):
    """The platform's own timestamps of each command; nothing is waited for before they are read.

    A device's clock has another zero than the host's and another rate (PoCL's, on one machine with
    NTP: 24 us in a second). So moments are taken on both, twice a second while there is work: when
    a marker was queued, as the device tells it, lies between two looks at the host's clock. Between
    two such moments time passes evenly, so what follows on the device follows on the host's clock.

    clGetDeviceAndHostTimer would do the same; PoCL 3.1 and Oclgrind lack it.
    """

    device: OpenCLDevice

    def __init__(self, device: OpenCLDevice) -> None:
        super().__init__(device)
        self._lock = threading.RLock()  # a finalizer may launch in the middle of anything
        self._knots = ClockSamples()
        self._waiting: list[tuple[int, cl.Event]] = []  # host_ns, and a marker queued then
        self._next_ns = 0
        self._mark()

    def measure(self, work: Callable[[], T]) -> tuple[T, Times]:
        """`work` gives the command's event; other work is timed by the host."""
        start = perf_counter_ns()
        if start >= self._next_ns:
            self._mark()
        result = work()
        called = start, perf_counter_ns()
        if not isinstance(result, cl.Event):
            return result, lambda: called
        read = _reader(result)

        def times() -> tuple[int, int]:
            try:
                start_ns, end_ns = read()
                return self._on_host(start_ns), self._on_host(end_ns)
            except cl.Error:  # it failed, which the next wait for the device tells
                return called

        return result, times

    def _mark(self) -> None:
        """Queues a few markers; the one that took the shortest to queue says most."""
        with self._lock:
            now = perf_counter_ns()
            if now < self._next_ns:  # another thread was faster
                return
            self._next_ns = now + _EVERY_NS
        found = []
        for _ in range(_TRIES):
            before = perf_counter_ns()
            marker = cl.enqueue_marker(self.device.queue)
            after = perf_counter_ns()
            found.append((after - before, (before + after) // 2, marker))
        _, host_ns, marker = min(found, key=lambda one: one[0])
        with self._lock:
            self._waiting.append((host_ns, marker))
            if len(self._waiting) > _MOST_WAITING:
                del self._waiting[1:-1:2]

    def _on_host(self, device_ns: int) -> int:
        with self._lock:
            while self._waiting:
                host_ns, marker = first = self._waiting[0]
                marker.wait()
                queued_ns = marker.profile.queued
                if self._waiting and self._waiting[0] is first:  # else it was read meanwhile
                    del self._waiting[0]
                    self._knots.add(queued_ns, host_ns)
        return self._knots.on_host(device_ns)

"""The times of a queue's work on the host's clock, read from the platform's events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from hal_opencl import driver
from hal_opencl.driver import COMPLETE, cl
from hal_streams.sampled_clock import SampledClock, Span

if TYPE_CHECKING:
    from hal_opencl.device import OpenCLDevice

T = TypeVar("T")


class OpenCLClock(SampledClock):
    """A clock that reads the platform's own timestamps of each command.

    Marks are markers in the queue. The platform notes when a marker was queued, on the device's
    clock, and says so when the marker is complete. (clGetDeviceAndHostTimer would give samples at
    once; PoCL 3.1 and Oclgrind lack it.)

    Work that gives no event, such as a copy through the host, is over when its call returns.

    Order: nothing is waited for before the times are read.
    """

    device: OpenCLDevice
    most_pending = 4096  # markers; then every second one is dropped

    def __init__(self, device: OpenCLDevice) -> None:
        super().__init__(device)
        self._pending: list[tuple[int, cl.Event]] = []  # host_ns, and the marker queued then
        self._sample()  # so that the first sample is older than all measured work

    def _mark(self) -> cl.Event:
        with driver.check("profile", self.device.name):
            return cl.enqueue_marker(self.device.commands)

    def _add_mark(self, mark: cl.Event, host_ns: int) -> None:
        self._pending.append((host_ns, mark))
        if len(self._pending) > self.most_pending:
            del self._pending[1:-1:2]

    def _queue(self, work: Callable[[], T], span: Span) -> T:
        result = work()
        if isinstance(result, cl.Event):
            span.command = result
            # Read at once if it is complete: the event of a blocking copy keeps host memory alive.
            if self._is_over(result):
                with self._lock:
                    self._read(span)
        return result

    def _is_over(self, command: cl.Event) -> bool:
        return bool(command.command_execution_status <= COMPLETE)  # below: it failed

    def _wait(self, command: cl.Event) -> None:
        with driver.check("profile", self.device.name):
            self.device.wait_for(command)

    def _read(self, span: Span) -> None:
        """Read the times of `span`, and take complete markers as samples."""
        event, span.command = span.command, None
        with suppress(cl.Error):
            while True:
                if not self._pending or not self._is_over(self._pending[0][1]):
                    break
                host_ns, marker = self._pending.pop(0)
                self._samples.add(marker.profile.queued, host_ns)
        with suppress(cl.Error):  # it failed, and keeps the host's times of its call
            span.passed = event.profile.start, event.profile.end

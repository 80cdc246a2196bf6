"""The times of a stream's work on the host's clock, read from events."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hal_core.errors import HalError
from hal_streams.marks import Mark, Marks
from hal_streams.sampled_clock import ClockSamples, SampledClock, Span

if TYPE_CHECKING:
    from hal_streams.device import StreamDevice

T = TypeVar("T")


class StreamClock(SampledClock):
    """A clock that records two events around each piece of work.

    The driver tells the time between two events, but not when an event was. So a mark is an event
    on an idle stream of its own, which the host waits for at once and so can date. The latest mark
    that became a sample is the anchor: times of later events are counted from it. The driver gives
    milliseconds as a float, wrong by 0.06 us for each second since the anchor, which is less than
    the clocks drift. The duration of work is the time between its own two events.

    Work for which the driver refuses an event is waited for and timed by the host.

    Order: nothing else is waited for before the times are read.
    Owns: its events, which are used again; none is left after `stop`.
    Concurrency: one piece of work is queued at a time, or their spans would overlap.
    """

    device: StreamDevice
    most_unread = 1024  # pieces of work; then the older half is read, and its events used again

    def __init__(self, device: StreamDevice) -> None:
        super().__init__(device)
        self.of_thread = threading.local()  # `.stream`: of the queue that this thread works for
        self._stream: Any = None  # for the marks
        self._anchor: Anchor | None = None
        self._unread: deque[Span] = deque()  # in the order of the calls
        self._marks = Marks(device, "profile")

    def _mark(self) -> Mark:
        device = self.device
        if self._stream is None:
            with device.own("profile"):
                self._stream = device.api.make_stream(independent=True)
        event = self._marks.record(self._stream)
        with device.api.relaxed():
            device.call("profile", device.api.wait_event, event.handle)
        return event

    def _add_mark(self, mark: Mark, host_ns: int) -> None:
        device_ns = self._device_ns(self._anchor, mark) if self._anchor else 0
        self._anchor = Anchor(mark, device_ns)
        self._samples.add(device_ns, host_ns)

    def _queue(self, work: Callable[[], T], span: Span) -> T:
        stream = getattr(self.of_thread, "stream", None)
        if stream is None:  # 0 is a stream
            stream = self.device.stream
        with self._lock:
            start = self._try_record(stream)
            result = work()
            end = start and self._try_record(stream)
            if start is not None and end is not None and self._anchor is not None:
                span.command = Command(self._anchor, start, end)
                span.samples = self._samples  # those of the anchor: `stop` begins new ones
                self._unread.append(span)
                if len(self._unread) >= self.most_unread:
                    self._read(self._unread[self.most_unread // 2])
                return result
        with suppress(HalError):  # a lost context, which the next wait reports again
            self.device._synchronize(None)
        return result

    def _wait(self, command: Command) -> None:
        self.device._synchronize(None)

    def _read(self, span: Span) -> None:
        """Read the times of `span` and of all work that was queued before it."""
        while span.command is not None and self._unread:
            first = self._unread.popleft()
            anchor, start, end = first.command
            first.command = None
            with suppress(HalError):  # it keeps the host's times of its call
                start_ns = self._device_ns(anchor, start)
                first.passed = start_ns, self._device_ns(Anchor(start, start_ns), end)

    def stop(self) -> None:
        """Read what is unread and destroy all events; the device may then be closed."""
        if self.device.forked:
            return
        with suppress(IndexError):  # IndexError: nothing is left to read
            self._times(self._unread[-1])
        device, api = self.device, self.device.api
        with self._lock:
            self._anchor, self._samples, self._next_sample_ns = None, ClockSamples(), 0
            self._marks.destroy_spare()
            if self._stream is not None:
                with suppress(HalError), device.own("profile"):
                    api.destroy_stream(self._stream)
                    self._stream = None

    def _try_record(self, stream: Any) -> Mark | None:
        """Record an event, or return None where the driver refuses."""
        # The work itself or the next wait raises the error.
        try:
            return self._marks.record(stream)
        except HalError:
            return None

    def _device_ns(self, anchor: Anchor, event: Mark) -> int:
        """Return the event's time on the device's clock."""
        between, handles = self.device.api.seconds_between, (anchor.event.handle, event.handle)
        with self.device.api.relaxed():
            seconds: float = self.device.call("profile", between, *handles)
        return anchor.device_ns + round(seconds * 1e9)


class Anchor(NamedTuple):
    """An event whose moment on the device's clock is known."""

    event: Mark
    device_ns: int


class Command(NamedTuple):
    """The two events around a piece of work, and the anchor that their times are counted from."""

    anchor: Anchor
    start: Mark
    end: Mark

"""The times of a stream's work on the host's clock, read from events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hal_core.errors import HalError
from hal_core.profiling import ClockSamples
from hal_core.profiling.sampled_clock import SampledClock, Span

if TYPE_CHECKING:
    from hal_cuda.device import CUDADevice

T = TypeVar("T")

_MAX_UNREAD = 1024


class CUDAClock(SampledClock):
    """A clock that records two events around each piece of work.

    Events give the time that passed between two of them and no more. So marks are events on a
    stream of their own, which has nothing else to do, and are waited for at once. The one that
    becomes a sample is the anchor that later events are counted from: the driver gives a float of
    milliseconds, wrong by 0.06 us for each second between the two, which is less than the clocks
    differ. How long the work took is asked for between its own two events.

    Work for which there is no event is waited for and timed by the host.

    Order: nothing else is waited for before the times are read.
    Owns: its events, which are used again; none is left after `stop`.
    Concurrency: one piece of work is queued at a time, or their spans would overlap.
    """

    device: CUDADevice

    def __init__(self, device: CUDADevice) -> None:
        super().__init__(device)
        self._stream: Any = None  # of the marks
        self._anchor: Anchor | None = None
        self._unread: deque[Span] = deque()  # in the order of the device's stream
        self._spare: list[Any] = []  # handles of events

    def _mark(self) -> Event:
        device = self.device
        if self._stream is None:
            with device.own("profile"):
                self._stream = device.api.make_stream(independent=True)
        event = self._record(self._stream)
        device.call("profile", device.api.wait_event, event.handle)
        return event

    def _add_mark(self, mark: Event, host_ns: int) -> None:
        device_ns = self._device_ns(self._anchor, mark) if self._anchor else 0
        self._anchor = Anchor(mark, device_ns)
        self._samples.add(device_ns, host_ns)

    def _queue(self, work: Callable[[], T], span: Span) -> T:
        stream = self.device.stream
        with self._lock:
            start = self._recorded(stream)
            result = work()
            end = start and self._recorded(stream)
            if start is not None and end is not None and self._anchor is not None:
                span.command = Command(self._anchor, start, end)
                span.samples = self._samples  # those of the anchor: `stop` begins new ones
                self._unread.append(span)
                if len(self._unread) >= _MAX_UNREAD:
                    self._read(self._unread[_MAX_UNREAD // 2])
                return result
        with suppress(HalError):  # the context is lost, as the next wait says again
            self.device._synchronize(None)
        return result

    def _wait(self, command: Command) -> None:
        self.device._synchronize(None)

    def _read(self, span: Span) -> None:
        """Read the times of `span` and of all work ahead of it in the stream."""
        while span.command is not None and self._unread:
            first = self._unread.popleft()
            anchor, start, end = first.command
            first.command = None
            with suppress(HalError):  # it has the times of its call
                start_ns = self._device_ns(anchor, start)
                first.passed = start_ns, self._device_ns(Anchor(start, start_ns), end)

    def stop(self) -> None:
        """Read what is unread and destroy all events; the device may then be closed."""
        if self.device.forked:
            return
        with suppress(IndexError):  # nothing is unread
            self._times(self._unread[-1])
        device, api = self.device, self.device.api
        with self._lock:
            self._anchor, self._samples, self._next_sample_ns = None, ClockSamples(), 0
            # What the driver refuses to destroy stays until the device closes.
            for handle in list(self._spare):
                with suppress(HalError), device.own("profile"):
                    api.destroy_event(handle)
                    self._spare.remove(handle)
            if self._stream is not None:
                with suppress(HalError), device.own("profile"):
                    api.destroy_stream(self._stream)
                    self._stream = None

    def _record(self, stream: Any) -> Event:
        device = self.device
        try:
            handle = self._spare.pop()
        except IndexError:
            with device.own("profile"):
                handle = device.api.make_event()
        event = Event(handle, self._spare)
        device.call("profile", device.api.record, handle, stream)
        return event

    def _recorded(self, stream: Any) -> Event | None:
        """Record an event, or return None where the driver refuses."""
        # The work itself or the next wait says what is wrong.
        try:
            return self._record(stream)
        except HalError:
            return None

    def _device_ns(self, anchor: Anchor, event: Event) -> int:
        """Return the event's time on the device's clock."""
        between = self.device.api.seconds_between
        seconds: float = self.device.call("profile", between, anchor.event.handle, event.handle)
        return anchor.device_ns + round(seconds * 1e9)


class Event:
    """An event of the driver, which the clock uses again when nothing refers to it."""

    __slots__ = ("handle", "spare")

    def __init__(self, handle: Any, spare: list[Any]) -> None:
        self.handle, self.spare = handle, spare

    def __del__(self) -> None:
        self.spare.append(self.handle)


class Anchor(NamedTuple):
    """An event whose moment on the device's clock is known."""

    event: Event
    device_ns: int


class Command(NamedTuple):
    """The events around a piece of work, and the anchor that they are counted from."""

    anchor: Anchor
    start: Event
    end: Event

"""When a stream did its work, on the host's clock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hal_core.errors import DeviceFault, HalError
from hal_core.profiling import ClockSamples, HostClock, Times

if TYPE_CHECKING:
    from hal_cuda.device import CUDADevice

T = TypeVar("T")

_EVERY_NS = 500_000_000
_TRIES = 5
_MOST_UNREAD = 1024


class Anchor(NamedTuple):
    """An event whose moment is known on both clocks."""

    event: Any
    device_ns: int


class Span:
    """Work between two events, which are gone once they were read."""

    __slots__ = ("anchor", "called", "end", "knots", "passed", "start")

    def __init__(self, anchor: Anchor, knots: ClockSamples, start: Any) -> None:
        self.anchor, self.knots, self.start = anchor, knots, start
        self.end: Any = None
        self.called = 0, 0  # when the host asked for it
        self.passed: tuple[int, int] | None = None  # on the device

    def times(self) -> tuple[int, int]:
        if self.passed is None:  # it failed, which the next wait for the device tells
            return self.called
        return self.knots.on_host(self.passed[0]), self.knots.on_host(self.passed[1])


class EventClock(HostClock):
    """Two events around each piece of work; nothing is waited for before they are read.

    Events tell what passed between two of them and no more. So twice a second, while there is work,
    some are recorded on a stream of their own, which has nothing else to do, and waited for: each
    lies between two looks at the host's clock. The closest is the anchor that later events are
    counted from. What the driver tells is a float of milliseconds, wrong by 0.06 us for each second
    between the two, which is less than the clocks differ; how long work took is asked for between
    its own two events.

    Work for which there is no event is waited for and timed by the host.

    Owns: its events, which are used again; none is left after `stop`.
    Concurrency: one piece of work is queued at a time, or their spans would overlap.
    """

    device: CUDADevice

    def __init__(self, device: CUDADevice) -> None:
        super().__init__(device)
        self._lock = threading.RLock()  # a finalizer may launch in the middle of anything
        self._aside: Any = None  # the anchors' stream
        self._anchors: deque[Anchor] = deque()  # those of unread spans, and the newest
        self._unread: deque[Span] = deque()  # in the stream's order
        self._spare: list[Any] = []
        self._knots = ClockSamples()
        self._next_ns = 0

    def measure(self, work: Callable[[], T]) -> tuple[T, Times]:
        if self.device.closed:
            return super().measure(work)
        with self._lock:
            begin = perf_counter_ns()
            span = self._begin(begin)
            try:
                result = work()
            except BaseException:
                if span is not None:
                    self._spare.append(span.start)
                raise
            if span is not None and self._ended(span):
                span.called = begin, perf_counter_ns()
                self._unread.append(span)
                if len(self._unread) >= _MOST_UNREAD:
                    self._read(self._unread[_MOST_UNREAD // 2])
                return result, lambda: self._times(span)
        with suppress(DeviceFault):  # the context is lost, as the next wait tells again
            self.device._synchronize(None)
        called = begin, perf_counter_ns()
        return result, lambda: called

    def stop(self) -> None:
        """Nothing is held of the device any more, which may then be closed."""
        if self.device.forked:
            return
        if self._unread:
            self._times(self._unread[-1])
        with self._lock:
            self._let_go()

    # -- the lock is held

    def _begin(self, now: int) -> Span | None:
        """None where the driver refuses, which the work itself or the next wait tells."""
        try:
            if now >= self._next_ns:
                self._mark()
            return Span(self._anchors[-1], self._knots, self._record(self.device.stream))
        except HalError:
            return None

    def _ended(self, span: Span) -> bool:
        with suppress(HalError):
            if span.anchor in self._anchors:  # else a finalizer inside of the work let it go
                span.end = self._record(self.device.stream)
                return True
        self._spare.append(span.start)
        return False

    def _record(self, stream: Any) -> Any:
        device = self.device
        try:
            event = self._spare.pop()
        except IndexError:
            with device.own("profile"):
                event = device.api.make_event()
        try:
            device.call("profile", device.api.record, event, stream)
        except BaseException:
            self._spare.append(event)
            raise
        return event

    def _mark(self) -> None:
        api = self.device.api
        if self._aside is None:
            with self.device.own("profile"):
                self._aside = api.make_stream(apart=True)
        moments: list[tuple[int, int, Any]] = []
        try:
            while len(moments) < _TRIES:
                before = perf_counter_ns()
                moments.append((0, 0, self._record(self._aside)))
                self.device.call("profile", api.wait_event, moments[-1][2])
                after = perf_counter_ns()
                moments[-1] = after - before, (before + after) // 2, moments[-1][2]
            _, host_ns, event = min(moments, key=lambda moment: moment[0])
            device_ns = self._after(self._anchors[-1], event) if self._anchors else 0
        except BaseException:
            self._spare += [event for *_, event in moments]
            raise
        self._spare += [other for *_, other in moments if other is not event]
        self._anchors.append(Anchor(event, device_ns))
        self._knots.add(device_ns, host_ns)
        self._next_ns = host_ns + _EVERY_NS
        self._forget_anchors()

    def _after(self, anchor: Anchor, event: Any) -> int:
        between = self.device.api.seconds_between
        seconds: float = self.device.call("profile", between, anchor.event, event)
        return anchor.device_ns + round(seconds * 1e9)

    def _read(self, last: Span) -> None:
        """That span, and what is ahead of it in the stream."""
        while last.end is not None and self._unread:
            span = self._unread.popleft()
            try:
                start_ns = self._after(span.anchor, span.start)
                took = self._after(Anchor(span.start, 0), span.end)
                span.passed = start_ns, start_ns + took
            except HalError:
                pass  # it has the time of its call
            finally:
                self._spare += [span.start, span.end]
                span.start = span.end = None
        self._forget_anchors()

    def _forget_anchors(self) -> None:
        while len(self._anchors) > 1 and (
            not self._unread or self._unread[0].anchor is not self._anchors[0]
        ):
            self._spare.append(self._anchors.popleft().event)

    def _let_go(self) -> None:
        """What the driver refuses to destroy stays, and is tried again when the device closes."""
        device, api = self.device, self.device.api
        events = [anchor.event for anchor in self._anchors] + self._spare
        self._anchors, self._spare = deque(), []
        self._knots, self._next_ns = ClockSamples(), 0
        for event in events:
            try:
                with device.own("profile"):
                    api.destroy_event(event)
            except HalError:
                self._spare.append(event)
        if self._aside is not None:
            with suppress(HalError), device.own("profile"):
                api.destroy_stream(self._aside)
                self._aside = None

    # -- it is not

    def _times(self, span: Span) -> tuple[int, int]:
        """Others may go on launching while it is waited for."""
        if span.end is not None and not self.device.forked:
            with suppress(HalError):  # which the next wait tells
                self.device._synchronize(None)
            with self._lock:
                with suppress(HalError):
                    if perf_counter_ns() >= self._next_ns:
                        self._mark()  # or a long queue's end would be far from any
                self._read(span)
        return span.times()

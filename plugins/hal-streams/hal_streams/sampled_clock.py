"""A base class for clocks that translate a device's own timestamps to the host's clock.

Twice a second, while there is work, the device is asked to note a moment between two readings of
the host's clock. Of five tries the shortest counts; the device's moment is taken to be its middle.

    try    host before    host after    took     device
      1     1_000_000      1_009_000    9_000     50_400
      2     1_010_000      1_012_000    2_000     56_900     -> sample (56_900, 1_011_000)
      3     1_013_000      1_018_000    5_000     61_100

Half a second later the same gives the sample (500_056_900, 501_021_000): this device's clock lost
10_000 ns to the host's. Work that the device began at 250_056_900 began at 251_016_000.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import itemgetter
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

from hal_core.errors import HalError
from hal_core.profiling.host_clock import HostClock, Times

if TYPE_CHECKING:
    from hal_core.device.base import Compiled

T = TypeVar("T")

_SAMPLE_EVERY_NS = 500_000_000
_TRIES = 5


class ClockSamples:
    """Samples of a device's clock, each later than the one before, and what lies between them.

    Both clocks are taken to run evenly from one sample to the next, so a straight line joins them;
    it continues before the first and after the last. With one sample both run at one rate.

        samples, added in this order      `on_host(device_ns)`
        device_ns   host_ns               device_ns   host_ns
                0     7_000                     400     7_500   between the first two: 1.25 to 1
            1_000     8_250                   1_500     8_800   between the last two:  1.10 to 1
            2_000     9_350                   3_000    10_450   after the last, at the last rate
                                               -400     6_500   before the first, at the first rate

    Order: the translation keeps the order of events on the device.
    Concurrency: one thread adds at a time; any thread may translate, at any time.
    """

    def __init__(self, most: int = 4096) -> None:
        self.most = most  # at two a second, half an hour until the older ones are thinned out
        # Of (device_ns, host_ns); replaced as a whole, so readers need no lock.
        self._samples: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, device_ns: int, host_ns: int) -> None:
        """Add a sample; when there are too many, drop every other one but the first and last."""
        samples = (*self._samples, (device_ns, host_ns))
        many = len(samples) > self.most
        self._samples = (samples[0], *samples[2:-1:2], samples[-1]) if many else samples

    def on_host(self, device_ns: int) -> int:
        """Translate a time of the device to the host's clock. Order: after the first `add`."""
        samples = self._samples
        after = bisect_right(samples, device_ns, key=itemgetter(0))
        after = min(max(after, 1), len(samples) - 1)
        earlier, later = samples[after - 1], samples[after]  # the same one if there is only one
        passed = later[0] - earlier[0]
        rate = (later[1] - earlier[1]) / passed if passed else 1.0
        return earlier[1] + round((device_ns - earlier[0]) * rate)


class Span:
    """The time that one piece of measured work took."""

    __slots__ = ("called", "command", "passed", "samples")

    def __init__(self, samples: ClockSamples) -> None:
        self.samples = samples
        self.command: Any = None  # what gives the device's times; None once they are read
        self.called = 0, 0  # begin and end of the call that queued the work, on the host's clock
        self.passed: tuple[int, int] | None = None  # begin and end on the device's clock

    def times(self) -> tuple[int, int]:
        """Return begin and end on the host's clock; those of the call where the work failed."""
        if self.passed is None or not len(self.samples):
            return self.called
        return self.samples.on_host(self.passed[0]), self.samples.on_host(self.passed[1])


class SampledClock(HostClock):
    """A clock that reads the device's timestamps long after the work was queued.

    A backend fills in five methods: `_mark` and `_add_mark` for samples; `_queue`, `_wait` and
    `_read` for work; and `_is_over`, if work in its driver's queues may wait for the host.

    Concurrency: `_add_mark` and `_read` run with the lock held, `_wait` never does.
    """

    now_ns = staticmethod(perf_counter_ns)  # of the host

    def __init__(self, device: Compiled) -> None:
        super().__init__(device)
        self._lock = threading.RLock()  # a finalizer may launch in the middle of anything
        self._samples = ClockSamples()
        self._next_sample_ns = 0

    def measure(self, work: Callable[[], T]) -> tuple[T, Times]:
        """Do `work`, and return with its result a function that gives its times."""
        if self.device.closed:
            return super().measure(work)
        begin_ns = self.now_ns()
        if begin_ns >= self._next_sample_ns:
            self._sample()
        span = Span(self._samples)
        result = self._queue(work, span)
        span.called = begin_ns, self.now_ns()
        return result, partial(self._times, span)

    # -- what a backend fills in

    def _mark(self) -> Any:
        """Ask the device to note a moment now, and return that mark. Raises: HalError."""
        raise NotImplementedError

    def _add_mark(self, mark: Any, host_ns: int) -> None:
        """Make a sample of a mark, now or when the device is done with it. Raises: HalError."""
        raise NotImplementedError

    def _queue(self, work: Callable[[], T], span: Span) -> T:
        """Do `work` and set `span.command`, or see to it that the work is over on return.

        Raises: what `work` raises.
        """
        raise NotImplementedError

    def _is_over(self, command: Any) -> bool:
        """Return whether measured work is over, or goes on to its end without the host."""
        return True

    def _wait(self, command: Any) -> None:
        """Wait for measured work. Raises: HalError."""
        raise NotImplementedError

    def _read(self, span: Span) -> None:
        """Set `span.command` to None, and `span.passed` unless the work failed."""
        raise NotImplementedError

    # -- translation

    def _sample(self) -> None:
        """Take a sample if one is due, which another thread may have done first."""
        # What the driver refuses here it refuses again at the work itself or at the next wait.
        with self._lock, suppress(HalError):
            if self.now_ns() < self._next_sample_ns:
                return
            tries: list[tuple[int, int, Any]] = []
            for _ in range(_TRIES):
                before = self.now_ns()
                mark = self._mark()
                after = self.now_ns()
                tries.append((after - before, (before + after) // 2, mark))
            _, host_ns, mark = min(tries, key=lambda one: one[0])
            self._add_mark(mark, host_ns)
            self._next_sample_ns = host_ns + _SAMPLE_EVERY_NS

    def _times(self, span: Span, wait: bool = True) -> tuple[int, ...]:
        command = span.command
        # After a fork another thread of the parent may hold the lock, and the driver hangs.
        if command is not None and not self.device.forked:
            if not (wait or self._is_over(command)):
                return ()
            with suppress(HalError):  # the next wait for the device raises it again
                self._wait(command)
            # Or the end of a long queue would be far from any sample.
            if self.now_ns() >= self._next_sample_ns:
                self._sample()
            with self._lock:
                if span.command is not None:  # else another thread has read it
                    self._read(span)
        return span.times()

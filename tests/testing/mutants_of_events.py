"""Mutants whose clock is wrong, or whose work is missing from profiles."""

from __future__ import annotations

import time
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from mutants import mutant

from hal_core import profiling
from hal_core.profiling import events, instrumentation, trace
from hal_testing.fake.device import FakeDevice

Times = tuple[int, int]


def _clock(change: Callable[[Times], Times]) -> None:
    """Change the times of all measured work."""

    class Clock(profiling.HostClock):
        def measure(self, work: Any) -> Any:
            result, times = super().measure(work)
            return result, lambda: change(times())

    FakeDevice._make_clock = lambda self: Clock(self)  # type: ignore[method-assign]


@mutant("F1", "event")
def events_are_on_another_clock() -> None:
    shift = time.time_ns() - perf_counter_ns()
    _clock(lambda times: (times[0] + shift, times[1] + shift))


@mutant("F1_launches", "event")
def events_tell_when_work_was_queued() -> None:
    class Clock(profiling.HostClock):
        def measure(self, work: Any) -> Any:
            begin = perf_counter_ns()
            result = work()
            times = begin, perf_counter_ns()
            return result, lambda: times

    FakeDevice._make_clock = lambda self: Clock(self)  # type: ignore[method-assign]


@mutant("F1", "event", instrumentation, "record")
def frees_are_not_recorded(inner: Any, kind_of: Any, kind: str, *rest: Any) -> None:
    if kind != "free":
        inner(kind_of, kind, *rest)


@mutant("F1", "event", profiling.Profile, "_read")
def what_is_dropped_is_not_counted(inner: Any, self: Any) -> Any:
    return inner(self)[0], 0


@mutant("F1", "event")
def profiles_stay_on() -> None:
    profiling.Profile._end = lambda self: None  # type: ignore[method-assign]


@mutant("F1", "event", events, "get_ident")
def every_event_is_of_one_thread(inner: Any) -> int:
    return 1


@mutant("F2", "event", trace, "rows_of")
def queues_share_a_row_of_the_trace(inner: Any, found: Any) -> Any:
    return inner([event._replace(queue="one") for event in found])


@mutant("F2", "event", trace, "arrows_of")
def arrows_begin_at_the_first_work(inner: Any, rows: Any) -> Any:
    return [arrow._replace(tail=(0, 0)) for arrow in inner(rows)]

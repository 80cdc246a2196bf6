"""Mutants whose clock is wrong, or whose work is missing from profiles."""

import time
from time import perf_counter_ns

from mutants import mutant

from hal_core import profiling
from hal_core.profiling import events, instrumentation, trace
from hal_core.profiling.host_clock import HostClock
from hal_cpu.clock import CPUClock
from hal_testing.fake.device import FakeDevice


def _clock(change):
    """Change the times of all measured work."""

    class Clock(HostClock):
        def measure(self, work):
            result, times = super().measure(work)
            return result, lambda wait=True: change(times())

    FakeDevice._make_clock = lambda self: Clock(self)  # type: ignore[method-assign]


@mutant("F1", "event")
def events_are_on_another_clock():
    shift = time.time_ns() - perf_counter_ns()
    _clock(lambda times: (times[0] + shift, times[1] + shift))


@mutant("F1_launches", "event")
def events_tell_when_work_was_queued():
    FakeDevice._make_clock = lambda self: CPUClock(self)  # type: ignore[method-assign]


@mutant("F1", "event", instrumentation, "record")
def frees_are_not_recorded(inner, kind_of, kind, *rest):
    if kind != "free":
        inner(kind_of, kind, *rest)


@mutant("F1", "event", profiling.Profile, "_read")
def what_is_dropped_is_not_counted(inner, self):
    return inner(self)[0], 0


@mutant("F1", "event")
def profiles_stay_on():
    profiling.Profile._end = lambda self: None  # type: ignore[method-assign]


@mutant("F1", "event", events, "get_ident")
def every_event_is_of_one_thread(inner):
    return 1


@mutant("F2", "event", trace, "rows_of")
def queues_share_a_row_of_the_trace(inner, found):
    return inner([event._replace(queue="one") for event in found])


@mutant("F2", "event", trace, "arrows_of")
def arrows_begin_at_the_first_work(inner, rows):
    return [((0, 0), head) for _, head in inner(rows)]

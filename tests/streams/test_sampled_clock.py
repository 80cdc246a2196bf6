"""F1: a device's timestamps on the host's clock, with a device that is played."""

import itertools
import random

import pytest

from hal_core.errors import DeviceFault, HalError
from hal_streams.sampled_clock import SampledClock

EVERY_NS, TRIES = 500_000_000, 5  # between two samples, and for each


class Device:
    closed = forked = False
    waits = 0

    def _synchronize(self, timeout):
        self.waits += 1
        return True


class Played(SampledClock):
    """Marks and work have the times that `next_marks` and `work` say."""

    def __init__(self):
        super().__init__(Device())
        self.next_marks = lambda: 0
        self.reads = self.samples = 0

    def _mark(self):
        return self.next_marks()

    def _add_mark(self, mark, host_ns):
        self.samples += 1
        self._samples.add(mark, host_ns)

    def _queue(self, work, span):
        span.command = work()
        return span.command

    def _wait(self, command):
        if command == "failed":
            raise DeviceFault("wait", "it failed")

    def _read(self, span):
        self.reads += 1
        span.command, command = None, span.command
        span.passed = None if command == "failed" else command


@pytest.fixture
def made():
    return Played()


def test_F1_the_worked_example_of_the_module(made):
    """With two tries more, which took longer."""
    device = iter([50_400, 56_900, 61_100, 0, 0, 500_056_900, 500_058_000, 500_059_000, 0, 0])
    made.next_marks = lambda: next(device)
    first = [1_000_000, 1_009_000, 1_010_000, 1_012_000, 1_013_000, 1_018_000]
    second = [501_020_000, 501_022_000, 501_022_000, 501_026_000, 501_026_000, 501_030_000]
    longer = [1_018_000, 1_028_000] * 2
    readings = [0, 0, *first, *longer, 1_020_000, 501_011_000, 501_011_000, *second, *longer]
    made.now_ns = lambda: readings.pop(0) if len(readings) > 1 else readings[0]
    _, times = made.measure(lambda: (250_056_900, 300_056_900))
    assert times() == (251_016_000, 301_017_000)


def test_F1_a_sample_is_taken_when_one_is_due(made):
    now = 10**15
    made.now_ns = lambda: now
    made.next_marks = lambda: now
    for step_ns, count in ((0, 1), (EVERY_NS - 1, 1), (1, 2), (10 * EVERY_NS, 3)):
        now += step_ns
        made.measure(lambda: (0, 1))
        assert made.samples == count


@pytest.mark.parametrize("drift", [-100e-6, 24e-6, 100e-6])
def test_F1_tries_that_were_disturbed_do_not_count(made, drift):
    rng, now, tries = random.Random(1), 10**15, itertools.count()

    def look():
        nonlocal now
        now += rng.randrange(500, 1500)
        return now

    def mark():
        nonlocal now
        noted = look()
        if next(tries) % TRIES != 2:
            now += 5_000_000  # another process had the processor
        return round(noted * (1 + drift))

    made.now_ns, made.next_marks = look, mark
    seen = []
    for _ in range(50):
        begin, end = look(), look() + 10**6
        moments = round(begin * (1 + drift)), round(end * (1 + drift))
        seen.append((begin, end, made.measure(lambda: moments)[1]))  # noqa: B023
        now += 10**8
    now += EVERY_NS
    for begin, end, times in seen:
        start_ns, end_ns = times()
        assert abs(start_ns - begin) < 3000 and abs(end_ns - end) < 3000


def test_F1_times_are_read_once_and_stay(made):
    _, times = made.measure(lambda: (100, 200))
    told = times()
    assert times() == told and made.reads == 1
    made.device.forked = True
    assert times() == told


@pytest.mark.parametrize("how", ["failed", "refused", "forked"])
def test_F1_work_without_times_has_those_of_its_call(made, how):
    def refuse():
        raise HalError("profile", "no")

    if how == "refused":
        made.next_marks = refuse
    before = made.now_ns()
    _, times = made.measure(lambda: "failed" if how == "failed" else (100, 200))
    after = made.now_ns()
    made.device.forked = how == "forked"
    start, end = times()
    assert before <= start <= end <= after
    assert made.reads == (how != "forked")


def test_F1_of_a_closed_device_the_host_tells_the_time(made):
    made.device.closed = True
    result, times = made.measure(lambda: 7)
    assert result == 7 and made.device.waits == 1
    start, end = times()
    assert start <= end and made.reads == 0

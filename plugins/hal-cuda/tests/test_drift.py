"""F1: event times are right with a GPU clock that drifts and a driver with coarse time steps."""

import contextlib
import random

import numpy as np
import pytest

from hal_streams.clock import StreamClock


class Pretended:
    """A device whose events are moments of a drifting clock, as coarse as the driver's."""

    closed = forked = False
    stream = "work"

    def __init__(self, rng, drift):
        self.rng, self.drift, self.api = rng, drift, self
        self.now_ns, self.busy_ns = 10**15, 0  # of the host; until when the stream works
        self.live = self.waits = 0

    def host_ns(self):
        self.now_ns += self.rng.randrange(100, 500)
        return self.now_ns

    def work(self, takes_ns=None):
        begin = max(self.host_ns(), self.busy_ns)
        self.busy_ns = begin + (takes_ns or round(10 ** self.rng.uniform(3, 8.5)))
        return begin, self.busy_ns

    # of the device

    def own(self, operation):
        return contextlib.nullcontext()

    def call(self, operation, function, *arguments):
        return function(*arguments)

    def _synchronize(self, timeout):
        self.now_ns = max(self.now_ns, self.busy_ns)
        return True

    # of the binding

    def relaxed(self):
        return contextlib.nullcontext()

    def make_stream(self, independent):
        self.live += 1
        return "aside"

    def destroy_stream(self, stream):
        self.live -= 1

    def make_event(self):
        self.live += 1
        return [0]

    def destroy_event(self, event):
        self.live -= 1

    def record(self, event, stream):
        event[0] = self.host_ns() + self.rng.randrange(500, 3000)
        if stream == "work":
            event[0] = self.busy_ns = max(event[0], self.busy_ns)
        self.host_ns()

    def wait_event(self, event):
        self.now_ns = max(self.now_ns, event[0] + self.rng.randrange(500, 3000))
        self.waits += 1
        if self.waits % 5 in (0, 2, 3):
            self.now_ns += 400_000  # another process had the processor

    def seconds_between(self, start, end):
        self.wait_event(end)
        half_us = round((end[0] - start[0]) * (1 + self.drift) / 500)
        return float(np.float32(half_us * 0.0005)) * 1e-3


@pytest.mark.parametrize("drift", [-100e-6, -1e-6, 0, 24e-6, 100e-6])
@pytest.mark.parametrize("pause_ns", [10**4, 10**8, 10**10])
def test_F1_a_clock_that_drifts_is_followed(drift, pause_ns):
    """Work of 1 us to 0.3 s, overlapping and in turn; more than the clock leaves unread."""
    rng = random.Random(pause_ns)
    device = Pretended(rng, drift)
    made, seen = StreamClock(device), []
    made.now_ns, made.most_unread = device.host_ns, 64
    for _ in range(300):
        seen.append(made.measure(device.work))
        device.now_ns += rng.randrange(2 * pause_ns)
        assert device.live <= 3 * 64 + 16  # two each, and anchors
    read = [times() for _, times in seen]
    made.stop()
    assert device.live == 0 and read == [times() for _, times in seen]
    for (begin, end), (start_ns, end_ns) in zip((truth for truth, _ in seen), read, strict=True):
        assert abs(start_ns - begin) < 3_000
        assert abs((end_ns - start_ns) - (end - begin)) < 3_000


def test_F1_the_end_of_a_long_queue_is_timed_as_well_as_its_begin():
    device = Pretended(random.Random(1), 100e-6)
    made = StreamClock(device)
    made.now_ns = device.host_ns
    seen = [made.measure(lambda: device.work(3 * 10**9)) for _ in range(20)]
    for (begin, end), times in seen:
        start_ns, end_ns = times()
        # A minute after its anchor the driver's float of milliseconds is wrong by 2 us.
        assert abs(start_ns - begin) < 5_000 and abs(end_ns - end) < 5_000

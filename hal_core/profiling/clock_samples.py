"""Translate timestamps of a device's clock into times of the host's clock.

A sample is one moment, read on both clocks. Between two samples both clocks are taken to run
evenly, so a straight line joins them; the line continues before the first and after the last.

    samples, added in this order          `on_host(device_ns)`
    device_ns   host_ns                   device_ns   host_ns
            0     7_000                         400     7_500   between the first two: 1.25 to 1
        1_000     8_250                       1_500     8_800   between the last two:  1.10 to 1
        2_000     9_350                       3_000    10_450   after the last, at the last rate
                                               -400     6_500   before the first, at the first rate

With one sample the clocks are taken to run at the same rate.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

_MAX_SAMPLES = 4096  # at two a second, half an hour until the older ones are thinned out


class ClockSample(NamedTuple):
    """One moment, read on the device's clock and on the host's."""

    device_ns: int
    host_ns: int


class ClockSamples:
    """Samples of a device's clock, each later than the one before.

    Order: the translation keeps the order of events on the device.
    Concurrency: one thread adds at a time; any thread may translate, at any time.
    """

    def __init__(self) -> None:
        self._samples: tuple[ClockSample, ...] = ()  # replaced as a whole, so readers need no lock

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, device_ns: int, host_ns: int) -> None:
        """Add a sample; when there are too many, drop every other one but the first and last."""
        samples = (*self._samples, ClockSample(device_ns, host_ns))
        many = len(samples) > _MAX_SAMPLES
        self._samples = (samples[0], *samples[2:-1:2], samples[-1]) if many else samples

    def on_host(self, device_ns: int) -> int:
        """Translate a time of the device to the host's clock. Order: after the first `add`."""
        samples = self._samples
        after = bisect_right(samples, device_ns, key=lambda sample: sample.device_ns)
        after = min(max(after, 1), len(samples) - 1)
        earlier, later = samples[after - 1], samples[after]  # the same one if there is only one
        passed = later.device_ns - earlier.device_ns
        rate = (later.host_ns - earlier.host_ns) / passed if passed else 1.0
        return earlier.host_ns + round((device_ns - earlier.device_ns) * rate)

"""A device's clock beside the host's."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

_MOST_KNOTS = 4096


class Knot(NamedTuple):
    """One moment on both clocks."""

    device_ns: int
    host_ns: int


class Knots:
    """Moments on both clocks, later ones behind. Between two of them time passes evenly, so what
    follows on the device follows on the host's clock, whatever its zero and its rate are.

    Concurrency: one thread adds at a time; any may ask, at any time.
    """

    def __init__(self) -> None:
        self._knots: tuple[Knot, ...] = ()

    def __len__(self) -> int:
        return len(self._knots)

    def add(self, device_ns: int, host_ns: int) -> None:
        """Of very many, every other one is forgotten."""
        knots = (*self._knots, Knot(device_ns, host_ns))
        many = len(knots) > _MOST_KNOTS
        self._knots = (knots[0], *knots[2:-1:2], knots[-1]) if many else knots

    def on_host(self, device_ns: int) -> int:
        """Order: after the first `add`. Before the first knot and after the last, time passes as
        beside it."""
        knots = self._knots
        behind = bisect_right(knots, device_ns, key=lambda knot: knot.device_ns)
        behind = min(max(behind, 1), len(knots) - 1)
        one, two = knots[behind - 1], knots[behind]  # the same when there is but one
        passed = two.device_ns - one.device_ns
        rate = (two.host_ns - one.host_ns) / passed if passed else 1.0
        return one.host_ns + round((device_ns - one.device_ns) * rate)

"""A device's clock on the host's, whatever its zero, its rate and the errors of its knots."""

from __future__ import annotations

import random

import pytest

from hal_core.profiling import Knots, knots

EVERY_NS = 500_000_000


def with_knots(*moments: tuple[int, int]) -> Knots:
    made = Knots()
    for moment in moments:
        made.add(*moment)
    return made


def test_F1_with_one_moment_the_clocks_go_at_one_rate() -> None:
    one = with_knots((1_000, 50_000))
    assert [one.on_host(ns) for ns in (0, 1_000, 4_000)] == [49_000, 50_000, 53_000]


@pytest.mark.parametrize("drift", [-100e-6, -1e-6, 0, 24e-6, 100e-6])
@pytest.mark.parametrize("count", [2, 3, 50])
def test_F1_a_device_s_clock_that_drifts_is_followed(drift: float, count: int) -> None:
    """Moments are taken half a second apart and wrong by up to 2 us, as measured."""
    rng = random.Random(count)

    def truth(device_ns: int) -> float:
        return 7e12 + device_ns * (1 + drift)

    moments = [10**13 + n * EVERY_NS for n in range(count)]
    exact = [(ns, round(truth(ns)) + rng.randrange(-2000, 2001)) for ns in moments]
    made = with_knots(*exact)
    times = sorted(rng.randrange(moments[0], moments[-1] + EVERY_NS) for _ in range(1000))
    mapped = [made.on_host(ns) for ns in times]
    assert mapped == sorted(mapped), "what follows on the device follows on the host's clock"
    assert max(abs(got - truth(ns)) for ns, got in zip(times, mapped, strict=True)) <= 6001
    assert [made.on_host(ns) for ns, _ in exact] == [host for _, host in exact]


def test_F1_knots_are_bounded_and_the_outer_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knots, "_MOST_KNOTS", 10)
    made = Knots()
    for n in range(100):
        made.add(n * EVERY_NS, 7 + n * EVERY_NS + n * n)
        assert len(made) <= 10
        assert made.on_host(0) == 7
        assert made.on_host(n * EVERY_NS) == 7 + n * EVERY_NS + n * n

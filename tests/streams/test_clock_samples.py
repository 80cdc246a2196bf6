"""Translation of a device's clock to the host's, for any zero, any rate and inexact samples."""

import random

import pytest

from hal_streams.sampled_clock import ClockSamples

EVERY_NS = 500_000_000


def with_samples(*moments):
    made = ClockSamples()
    for moment in moments:
        made.add(*moment)
    return made


def test_F1_the_worked_example_of_the_class():
    made = with_samples((0, 7_000), (1_000, 8_250), (2_000, 9_350))
    asked = (400, 1_500, 3_000, -400)
    assert [made.on_host(ns) for ns in asked] == [7_500, 8_800, 10_450, 6_500]


def test_F1_with_one_sample_the_clocks_run_at_one_rate():
    one = with_samples((1_000, 50_000))
    assert [one.on_host(ns) for ns in (0, 1_000, 4_000)] == [49_000, 50_000, 53_000]


@pytest.mark.parametrize("drift", [-100e-6, -1e-6, 0, 24e-6, 100e-6])
@pytest.mark.parametrize("count", [2, 3, 50])
def test_F1_a_device_s_clock_that_drifts_is_followed(drift, count):
    """Samples are half a second apart and wrong by up to 2 us, as was measured."""
    rng = random.Random(count)

    def truth(device_ns):
        return 7e12 + device_ns * (1 + drift)

    moments = [10**13 + n * EVERY_NS for n in range(count)]
    exact = [(ns, round(truth(ns)) + rng.randrange(-2000, 2001)) for ns in moments]
    made = with_samples(*exact)
    times = sorted(rng.randrange(moments[0], moments[-1] + EVERY_NS) for _ in range(1000))
    mapped = [made.on_host(ns) for ns in times]
    assert mapped == sorted(mapped), "what follows on the device follows on the host's clock"
    assert max(abs(got - truth(ns)) for ns, got in zip(times, mapped, strict=True)) <= 6001
    assert [made.on_host(ns) for ns, _ in exact] == [host for _, host in exact]


def test_F1_samples_are_bounded_and_the_first_and_last_stay():
    made = ClockSamples(most=10)
    for n in range(100):
        made.add(n * EVERY_NS, 7 + n * EVERY_NS + n * n)
        assert len(made) <= 10
        assert made.on_host(0) == 7
        assert made.on_host(n * EVERY_NS) == 7 + n * EVERY_NS + n * n

"""Weak sets that several threads use at once; waiting with a time limit (Q2)."""

import threading

import pytest
from in_threads import results

from hal_core.concurrency import Living, poll, threads


class One:
    pass


def test_what_lives_is_known_once():
    known, ones = Living[One](), [One() for _ in range(5)]
    for one in (*ones, *ones):
        known.add(one)
    assert set(known) == set(ones) and len(known) == 5
    del ones[1:4], one
    assert set(known) == set(ones) and len(known) == 2
    ones.clear()
    assert list(known) == [] and len(known) == 0


def test_X1_objects_come_and_go_while_they_are_listed(busy_threads):
    known, stay, end = Living[One](), [One() for _ in range(50)], threading.Event()
    for one in stay:
        known.add(one)

    def change():
        while not end.is_set():
            for one in [One() for _ in range(50)]:
                known.add(one)

    def look():
        try:
            for _ in range(300):
                assert set(stay) <= set(known)
        finally:
            end.set()

    results(*[change] * 3, look)
    assert set(known) == set(stay)


def test_what_is_done_is_not_waited_for():
    assert poll(lambda: True, 0)
    assert poll(lambda: True, -1)
    assert not poll(lambda: False, 0)


def test_it_is_done_after_some_looks():
    looks = iter([False, False, False, True])
    assert poll(lambda: next(looks), 60)
    assert not list(looks)


class Clock:
    """A clock that goes on while a thread sleeps, and by 5 us at each look."""

    def __init__(self):
        self.now, self.sleeps, self.looks = 0.0, list[float](), 0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.sleeps.append(seconds)

    def look(self):
        self.now += 5e-6
        self.looks += 1
        return False


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(threads, "time", made)
    return made


def test_a_thread_that_waits_looks_rarely(clock):
    """Each look would take a core from the work that it waits for."""
    assert not poll(lambda: False, 1e-3, awake=0)
    assert len(clock.sleeps) < 40 and min(clock.sleeps[:-1]) >= 20e-6
    assert clock.now == pytest.approx(1e-3)


def test_Q2_a_long_wait_ends_in_time_and_sleeps(clock):
    assert not poll(clock.look, 0.3)
    assert 0.3 <= clock.now < 0.302 and sum(clock.sleeps) > 0.9 * clock.now
    assert 30 < clock.looks < 700, "it looks about once in a millisecond, more often at first"


def test_what_the_look_raises_gets_out():
    with pytest.raises(ZeroDivisionError):
        poll(lambda: bool(1 // 0), 60)

"""Weak sets that several threads use at once; waiting with a time limit (Q2)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hal_core.concurrency import Living, poll, threads


class One:
    pass


def test_what_lives_is_known_once() -> None:
    known, ones = Living[One](), [One() for _ in range(5)]
    for one in (*ones, *ones):
        known.add(one)
    assert set(known) == set(ones) and len(known) == 5
    del ones[1:4], one
    assert set(known) == set(ones) and len(known) == 2
    ones.clear()
    assert list(known) == [] and len(known) == 0


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """Threads change places as often as the interpreter lets them."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_X1_objects_come_and_go_while_they_are_listed(busy_threads: None) -> None:
    known, stay, end = Living[One](), [One() for _ in range(50)], threading.Event()
    for one in stay:
        known.add(one)

    def change() -> None:
        while not end.is_set():
            for one in [One() for _ in range(50)]:
                known.add(one)

    threads = [threading.Thread(target=change) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            assert set(stay) <= set(known)
    finally:
        end.set()
        for thread in threads:
            thread.join()
    assert set(known) == set(stay)


def test_what_is_done_is_not_waited_for() -> None:
    assert poll(lambda: True, 0)
    assert poll(lambda: True, -1)
    assert not poll(lambda: False, 0)


def test_it_is_done_after_some_looks() -> None:
    looks = iter([False, False, False, True])
    assert poll(lambda: next(looks), 60)
    assert not list(looks)


def test_a_thread_that_waits_looks_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look would take a core from the work that it waits for."""
    now, sleeps = 0.0, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        sleeps.append(seconds)

    monkeypatch.setattr(threads, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    assert not poll(lambda: False, 1e-3, awake=0)
    assert len(sleeps) < 40 and min(sleeps[:-1]) >= 20e-6
    assert now == pytest.approx(1e-3)


def test_Q2_a_long_wait_ends_in_time_and_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asleep, looks = 0.0, 0.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now, asleep
        now += seconds
        asleep += seconds

    def look() -> bool:
        nonlocal now, looks
        now += 5e-6
        looks += 1
        return False

    monkeypatch.setattr(threads, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    assert not poll(look, 0.3)
    assert 0.3 <= now < 0.302 and asleep > 0.9 * now
    assert 30 < looks < 700, "it looks about once in a millisecond, more often at first"


def test_what_the_look_raises_gets_out() -> None:
    with pytest.raises(ZeroDivisionError):
        poll(lambda: bool(1 // 0), 60)

"""Q2: waiting with a time limit, which ends in time and uses no core."""

from __future__ import annotations

import time

import pytest

from hal_core.polling import poll


def test_what_is_done_is_not_waited_for() -> None:
    assert poll(lambda: True, 0)
    assert poll(lambda: True, -1)
    assert not poll(lambda: False, 0)


def test_it_is_done_after_some_looks() -> None:
    looks = iter([False, False, False, True])
    assert poll(lambda: next(looks), 60)
    assert not list(looks)


def test_Q2_a_long_wait_ends_in_time_and_sleeps() -> None:
    looks: list[float] = []
    start, used = time.monotonic(), time.process_time()
    assert not poll(lambda: bool(looks.append(time.monotonic())), 0.3)
    assert 0.3 <= time.monotonic() - start < 5
    assert time.process_time() - used < 0.15
    assert 30 < len(looks) < 330, "it looks about once in a millisecond"


def test_what_the_look_raises_gets_out() -> None:
    with pytest.raises(ZeroDivisionError):
        poll(lambda: bool(1 // 0), 60)

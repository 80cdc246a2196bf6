"""Objects are known as long as they live, and may come and go while they are listed."""

from __future__ import annotations

import pytest

from hal_core import concurrency
from hal_core.concurrency import Living
from hal_core.testing.interrupted import Scene, everywhere


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


@pytest.mark.parametrize("thread", [False, True], ids=["finalizer", "thread"])
def test_X1_added_and_gone_while_it_is_listed(thread: bool) -> None:
    def scene() -> Scene:
        known, ones, seen = Living[One](), [One() for _ in range(8)], list[One]()
        stay = ones[:4]
        for one in ones:
            known.add(one)
        del one

        def change() -> None:
            del ones[4:]
            ones.extend(One() for _ in range(20))
            for one in ones:
                known.add(one)

        def check() -> None:
            assert set(stay) <= set(seen)
            seen.clear()
            assert set(known) == set(ones)

        return Scene(lambda: seen.extend(known), change, check)

    assert everywhere([concurrency.__file__], scene, on_another_thread=thread) > 0

"""Work in several threads at once, and an end to those that wait for ever."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable

import pytest

SECONDS = 60.0


def in_threads(work: Callable[[int], None], count: int) -> None:
    """`work(number)` in `count` threads that begin together; fails where one fails or hangs."""
    begin, wrong = threading.Barrier(count), list[str]()

    def run(number: int) -> None:
        try:
            begin.wait(SECONDS)
            work(number)
        except BaseException:
            wrong.append(f"thread {number} of {count}:\n{traceback.format_exc()}")

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    hanging = sum(thread.is_alive() for thread in threads)
    if wrong:
        pytest.fail("\n".join(wrong[:2]))
    assert not hanging, f"{hanging} of {count} threads hang"

"""Run work in several threads at once, with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable

SECONDS = 60.0


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Call `work(number)` in `count` threads at once; fail if one of them fails or hangs."""
    # They start together: threads that start one by one may have ended before they meet.
    begin, wrong = threading.Barrier(count), list[BaseException]()

    def run(number: int) -> None:
        try:
            begin.wait(SECONDS)
            work(number)
        except BaseException as error:
            error.add_note(f"in thread {number} of {count}")
            wrong.append(error)

    # Daemons, so that a thread that hangs does not keep the process from ending.
    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    hanging = sum(thread.is_alive() for thread in threads)
    if wrong:
        raise wrong[0]
    assert not hanging, f"{hanging} of {count} threads hang"

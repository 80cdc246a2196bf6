"""Waiting with a time limit for what can only be asked whether it is done."""

from __future__ import annotations

import time
from collections.abc import Callable

_SHORTEST_NAP = 20e-6  # seconds between two looks, doubled after each
_LONGEST_NAP = 1e-3


def poll(is_done: Callable[[], bool], timeout: float) -> bool:
    """Wait until `is_done()`; return False when `timeout` seconds have passed first.

    Drivers have no wait with a limit. Between two looks the thread sleeps, so that a long wait
    takes no processor from others.

    Raises: what `is_done` raises.
    """
    deadline = time.monotonic() + timeout
    nap = _SHORTEST_NAP
    while not is_done():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(nap, left))
        nap = min(2 * nap, _LONGEST_NAP)
    return True

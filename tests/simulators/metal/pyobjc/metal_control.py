"""Control and accounts of software Metal: what was sent, what fails next, what was left behind."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections import Counter, deque


class ProcessEnds(BaseException):
    """Metal would end the process here. Every one is in `aborts`, also when a caller caught it."""


class Fault:
    """A way for the next command buffer to fail: code of MTLCommandBufferErrorDomain."""

    def __init__(self, code: int, words: str) -> None:
        self.code, self.words = code, words


messages: Counter[str] = Counter()  # selector -> how often it was sent
aborts: list[str] = []  # why Metal would have ended the process
over_retained: list[object] = []  # made by `new...` while nobody told pyobjc that it is retained
outside: list[object] = []  # autoreleased while its thread had no pool: it is never released
faults: deque[Fault] = deque()  # of the command buffers that run next
_failures: dict[str, int] = {}  # selector -> turns until it fails
_alive: dict[int, weakref.ref[object]] = {}  # a weak set would send `hash`

seconds = 0.0  # that each command buffer takes at least
most_threads = 0  # of a block, in every pipeline made from now on; 0: as the kernel says
room = 2 << 30  # bytes of memory of each device
read_write_tier = 2  # MTLReadWriteTextureTier
unified = True  # the GPU computes in the host's memory
go = threading.Event()  # cleared: command buffers wait before they run
go.set()


def reset() -> None:
    """Let nothing fail, wait or be slow, and forget what was counted."""
    global seconds, most_threads, room, unified, read_write_tier
    seconds, most_threads, room, unified, read_write_tier = 0.0, 0, 2 << 30, True, 2
    go.set()
    for record in (messages, aborts, over_retained, outside, faults, _failures):
        record.clear()


def fail(selector: str, turn: int = 1) -> None:
    """Let the turn-th message of this selector from now on fail: nil, an NSError, or raised."""
    _failures[selector] = turn


def fails(selector: str) -> bool:
    if selector not in _failures:
        return False
    _failures[selector] -= 1
    if _failures[selector]:
        return False
    del _failures[selector]
    return True


def end_process(why: str) -> ProcessEnds:
    """Return the exception for a use at which Metal ends the process."""
    aborts.append(why)
    return ProcessEnds(f"Metal ends the process: {why}")


def add(thing: object) -> None:
    number = id(thing)
    _alive[number] = weakref.ref(thing, lambda _: _alive.pop(number, None))


def alive() -> Counter[str]:
    """Count the objects that exist, by class."""
    found = [known() for known in list(_alive.values())]
    return Counter(type(thing).__name__ for thing in found if thing is not None)


@atexit.register
def _at_exit() -> None:
    left = [*aborts, *(f"over-retained: {one!r}" for one in over_retained)]
    left += [f"autoreleased outside of a pool: {one!r}" for one in outside]
    if left:
        print("software Metal:", *left[:20], sep="\n    ", file=sys.stderr, flush=True)
        os._exit(134)

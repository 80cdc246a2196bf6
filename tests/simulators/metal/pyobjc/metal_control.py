"""Control and accounts of software Metal: what was sent, what fails next, what was left behind."""

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

    def __init__(self, code, words):
        self.code, self.words = code, words


messages = Counter()  # selector -> how often it was sent
aborts = []  # why Metal would have ended the process
over_retained = []  # made by `new...` while nobody told pyobjc that it is retained
outside = []  # autoreleased while its thread had no pool: it is never released
faults = deque()  # of the command buffers that run next
_failures = {}  # selector -> turns until it fails
_alive = {}  # a weak set would send `hash`

seconds = 0.0  # that each command buffer takes at least
most_threads = 0  # of a block, in every pipeline made from now on; 0: as the kernel says
room = 2 << 30  # bytes of memory of each device
read_write_tier = 2  # MTLReadWriteTextureTier
unified = True  # the GPU computes in the host's memory
go = threading.Event()  # cleared: command buffers wait before they run
go.set()


def reset():
    """Let nothing fail, wait or be slow, and forget what was counted."""
    global seconds, most_threads, room, unified, read_write_tier
    seconds, most_threads, room, unified, read_write_tier = 0.0, 0, 2 << 30, True, 2
    go.set()
    for record in (messages, aborts, over_retained, outside, faults, _failures):
        record.clear()


def fail(selector, turn=1):
    """Let the turn-th message of this selector from now on fail: nil, an NSError, or raised."""
    _failures[selector] = turn


def fails(selector):
    if selector not in _failures:
        return False
    _failures[selector] -= 1
    if _failures[selector]:
        return False
    del _failures[selector]
    return True


def end_process(why):
    """Return the exception for a use at which Metal ends the process."""
    aborts.append(why)
    return ProcessEnds(f"Metal ends the process: {why}")


def add(thing):
    number = id(thing)
    _alive[number] = weakref.ref(thing, lambda _: _alive.pop(number, None))


def alive():
    """Count the objects that exist, by class."""
    found = [known() for known in list(_alive.values())]
    return Counter(type(thing).__name__ for thing in found if thing is not None)


@atexit.register
def _at_exit():
    left = [*aborts, *(f"over-retained: {one!r}" for one in over_retained)]
    left += [f"autoreleased outside of a pool: {one!r}" for one in outside]
    if left:
        print("software Metal:", *left[:20], sep="\n    ", file=sys.stderr, flush=True)
        os._exit(134)

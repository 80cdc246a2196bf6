"""Where events go while profiles are open: into each one's ring."""

from __future__ import annotations

import itertools
from collections import deque
from threading import get_ident
from typing import Any

from hal_core.profiling.events import ProfileEvent
from hal_core.profiling.host_clock import Times

Entry = tuple[int, type[ProfileEvent], str, str, str, "tuple[int, int] | Times", int, int]


class Ring:
    """The last `limit` events. Adding takes no lock: finalizers add, perhaps inside of another
    addition."""

    def __init__(self, limit: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=limit)
        self._number = itertools.count()

    def add(self, *entry: Any) -> None:
        self._entries.append((next(self._number), *entry))

    def read(self) -> tuple[tuple[ProfileEvent, ...], int]:
        """Events by their start, and how many there were before those. Waits for the work that
        they are about."""
        entries = self._snapshot()
        events = [_event(*entry) for entry in entries]
        events.sort(key=lambda event: (event.start_ns, event.end_ns))
        made = 1 + max((entry[0] for entry in entries), default=-1)
        return tuple(events), made - len(entries)

    def _snapshot(self) -> list[Entry]:
        while True:
            try:
                return list(self._entries)
            except RuntimeError:  # another thread added meanwhile
                continue


def _event(
    number: int,
    record: type[ProfileEvent],
    kind: str,
    name: str,
    device: str,
    times: tuple[int, int] | Times,
    nbytes: int,
    thread: int,
) -> ProfileEvent:
    start, end = times() if callable(times) else times
    return record(kind, name, device, start, end, nbytes, thread)


rings: tuple[Ring, ...] = ()  # of the open profiles; replaced, never changed


def record(
    kind_of: type[ProfileEvent],
    kind: str,
    name: str,
    device: str,
    times: tuple[int, int] | Times,
    nbytes: int = 0,
) -> None:
    thread = get_ident()
    for ring in rings:
        ring.add(kind_of, kind, name, device, times, nbytes, thread)

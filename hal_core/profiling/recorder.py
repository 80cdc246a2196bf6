"""Buffers of events, one for each open profile."""

from __future__ import annotations

import itertools
from collections import deque
from threading import get_ident
from typing import Any

from hal_core.profiling.events import ProfileEvent
from hal_core.profiling.host_clock import Times

Entry = tuple[int, type[ProfileEvent], str, str, str, "tuple[int, int] | Times", int, int]


class Ring:
    """The last `limit` events of one profile.

    Concurrency: adding takes no lock, as finalizers add too; each step is one under the GIL.
    """

    def __init__(self, limit: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=limit)
        self._number = itertools.count()

    def add(self, *entry: Any) -> None:
        self._entries.append((next(self._number), *entry))

    def read(self) -> tuple[tuple[ProfileEvent, ...], int]:
        """Return the events by their start, and how many older ones were dropped.

        Waits for work that is still in flight.
        """
        entries = list(self._entries)  # one step under the GIL
        events = []
        for _, kind_of, kind, name, device, times, nbytes, thread in entries:
            start, end = times() if callable(times) else times
            events.append(kind_of(kind, name, device, start, end, nbytes, thread))
        events.sort(key=lambda event: (event.start_ns, event.end_ns))
        # Two threads may have added in another order than they took their numbers.
        added = 1 + max((entry[0] for entry in entries), default=-1)
        return tuple(events), added - len(entries)


rings: tuple[Ring, ...] = ()  # of the open profiles; replaced as a whole, so readers need no lock


def record(
    kind_of: type[ProfileEvent],
    kind: str,
    name: str,
    device: str,
    times: tuple[int, int] | Times,
    nbytes: int = 0,
) -> None:
    """Add an event of this thread to every open profile."""
    thread = get_ident()
    for ring in rings:
        ring.add(kind_of, kind, name, device, times, nbytes, thread)

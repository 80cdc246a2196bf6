"""Checked mode: finds accesses of one byte range by queues that nothing orders.

    queue 1: launch of f, writes bytes 0 to 400       f is access 1 of queue 1
    queue 2: wait(event of queue 1)                   queue 2 now knows of access 1 of queue 1
    queue 2: launch of g, reads bytes 0 to 100        in order
    queue 3: launch of h, reads bytes 0 to 100        queue 3 knows of nothing: h raises

Each queue has a clock: for every queue, the number of the last access that it comes after. Calls
are compared when they are made, not when they run: what is wrong by chance is found each time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from hal_core.concurrency import fork_safe_lock
from hal_core.errors import KernelFault

if TYPE_CHECKING:
    from hal_core.queue.event import Event

Clock = dict[str, int]  # name of a queue -> the number of its last access that this one knows of
Range = tuple[int, int, bool]  # first byte, the byte after the last, whether it is written

working = threading.local()  # `.now`: this thread does the work of a queue, whose calls are checked


class Access(NamedTuple):
    """One use of a byte range."""

    start: int
    end: int
    writes: bool
    queue: str
    number: int
    work: str  # "launch of saxpy"


class Order:
    """The accesses of one device, and what each of its queues comes after."""

    def __init__(self, device: str) -> None:
        self._device = device
        # The host's calls are those of the default queue: each is done when it returns.
        self.host = f"the default queue of {device}"
        self._lock = fork_safe_lock()
        self._clocks: dict[str, Clock] = {self.host: {}}
        self._unknown: dict[str, list[Event]] = {}  # waited for before they were recorded
        self._accesses: list[Access] = []
        self._has_queues = False  # before, there is nothing to compare

    def add(self, queue: str, work: str, ranges: Iterable[Range]) -> None:
        """Add the accesses of one call. Raises: KernelFault for one that nothing orders."""
        self._has_queues = self._has_queues or queue != self.host
        if not self._has_queues:
            return
        with self._lock:
            clock = self._clock(queue)
            number = clock.get(queue, 0) + 1
            made = [Access(*one, queue, number, work) for one in ranges if one[0] < one[1]]
            if not self._unknown.get(queue):  # else nobody knows yet what it comes after
                for access in made:
                    self._check(access, clock)
            clock[queue] = number
            for access in made:
                self._accesses = [
                    old for old in self._accesses if not _replaces(access, old, clock)
                ]
                self._accesses.append(access)

    def recorded(self, queue: str, event: Event) -> None:
        with self._lock:
            event._clock = dict(self._clock(queue))
            event._after = list(self._unknown.get(queue, ()))
            event._seen = self.seen

    def waited(self, queue: str, event: Event) -> None:
        with self._lock:
            self._unknown.setdefault(queue, []).append(event)
            self._clock(queue)

    def seen(self, event: Event) -> None:
        """The host knows that the event has happened: its later calls come after it."""
        with self._lock:
            _merge(self._clocks[self.host], _known(event, ()) or {})

    def seen_all(self) -> None:
        """The host has waited for all queues."""
        with self._lock:
            for clock in list(self._clocks.values()):
                _merge(self._clocks[self.host], clock)

    def forget(self, start: int, nbytes: int) -> None:
        """Forget accesses of memory that is freed."""
        with self._lock:
            end = start + nbytes
            self._accesses = [old for old in self._accesses if old.end <= start or old.start >= end]

    def _clock(self, queue: str) -> Clock:
        """Return the queue's clock as of now. Its work comes after what the host has done."""
        clock = self._clocks.setdefault(queue, {})
        _merge(clock, self._clocks[self.host])
        unknown = []
        for event in self._unknown.pop(queue, []):
            known = _known(event, ())
            _merge(clock, known or {})
            unknown += [event] if known is None else []
        if unknown:
            self._unknown[queue] = unknown
        return clock

    def _check(self, access: Access, clock: Clock) -> None:
        for old in self._accesses:
            apart = old.end <= access.start or access.end <= old.start
            if apart or not (old.writes or access.writes):
                continue
            if old.queue != access.queue and clock.get(old.queue, 0) < old.number:
                first, last = max(old.start, access.start), min(old.end, access.end)
                verbs = ["writes" if one.writes else "reads" for one in (access, old)]
                waits = f"{access.queue}.wait(event of {old.queue})"
                if access.queue == self.host:
                    waits = f"wait for an event of {old.queue}"
                raise KernelFault(
                    access.work,
                    f"{access.queue} {verbs[0]} {last - first} bytes that {old.work} in "
                    f"{old.queue} {verbs[1]}, and nothing orders the two",
                    got=f"bytes {first:#x} to {last:#x}",
                    device=self._device,
                    fix=f"Before it: {waits}, recorded behind the {old.work}.",
                )


def _replaces(new: Access, old: Access, clock: Clock) -> bool:
    """Tell whether whatever conflicts with the old access conflicts with the new one, too."""
    within = new.start <= old.start and old.end <= new.end
    later = old.queue == new.queue or clock.get(old.queue, 0) >= old.number
    return within and later and (new.writes or not old.writes)


def _known(event: Event, asked: tuple[Event, ...]) -> Clock | None:
    """Return what an event comes after; None while it waits for one that is not recorded yet."""
    if event._clock is None:
        return {} if event.queue is None and event._done else None
    while event._after:
        first = event._after[0]
        known = None if first in asked else _known(first, (*asked, event))
        if known is None:
            return None
        _merge(event._clock, known)
        event._after.remove(first)
    return event._clock


def _merge(clock: Clock, other: Clock) -> None:
    for queue, number in other.items():
        if number > clock.get(queue, 0):
            clock[queue] = number

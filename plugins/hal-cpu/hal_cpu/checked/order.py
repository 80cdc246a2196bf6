"""Checked mode: finds accesses of one byte range by queues that nothing orders.

Ranges are addresses in memory that the host sees: of buffers on the CPU, and of host memory that
queues copy from or to. Queues of other devices are observed, too: those of the CPU wait for them.

    queue 1: launch of f, writes bytes 0 to 400       f is access 1 of queue 1
    queue 2: wait(event of queue 1)                   queue 2 now knows of access 1 of queue 1
    queue 2: launch of g, reads bytes 0 to 100        in order
    queue 3: launch of h, reads bytes 0 to 100        queue 3 knows of nothing: h raises

Each queue has a clock: for every queue, the number of the last access that it comes after. Calls
are compared when they are made, not when they run: what is wrong by chance is found each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import filterfalse
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

import numpy as np

from hal_core.concurrency import fork_safe_lock, forkable
from hal_core.queue import DirectQueue
from hal_cpu.device import CPUDevice
from hal_kernel.errors import KernelFault

if TYPE_CHECKING:
    from hal_core.buffer import Buffer
    from hal_core.queue import Event, Queue

Clock = dict[str, int]  # name of a queue -> the number of its last access that this one knows of
Range = tuple[int, int, bool]  # first byte, the byte after the last, whether it is written
# Name, buffers, and memory of the host, each with True where it is written.
Work = tuple[str, Iterable[tuple["Buffer", bool]], tuple[memoryview, bool] | None]

HOST = "the default queue"  # the host's calls are its work: each is done when it returns


class Access(NamedTuple):
    """One use of a byte range."""

    start: int
    end: int
    writes: bool
    queue: str
    number: int
    work: str  # "launch of saxpy"
    memory: object  # of the host, which is not used anew while the access is known


class Moment:
    """The place of an event. Called when the host knows that the event has happened."""

    def __init__(self, order: Order, clock: Clock, after: list[Event]) -> None:
        self.order = order
        self.clock = clock  # what it comes after
        self.after = after  # waited for, and recorded later

    def __call__(self, event: Event) -> None:
        self.order.seen(event)


class Order:
    """The accesses of all queues that the host has not waited for, and what each queue comes after.

    One for all devices: their queues wait for each other, and copy from each other's memory.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._after_fork()
        forkable.add(self)

    def _after_fork(self) -> None:
        """Begin anew in a child, which has none of its parent's queues."""
        self._clocks: dict[str, Clock] = {HOST: {}}
        # Name of a queue -> the queue, and the name of its device.
        self._queues: dict[str, tuple[ref[Queue], str]] = {}
        self._unknown: dict[str, list[Event]] = {}  # waited for before they were recorded
        self._accesses: list[Access] = []

    def add(self, queue: Queue, works: Iterable[Work]) -> None:
        """Add the accesses of one call, or of the launches of a replay.

        Raises: KernelFault for one that nothing orders; then none is added.
        """
        if not _is_checked(queue.device):
            return
        found = [
            (work, [*ranges_of(uses), *([range_of(*host)] if host else [])], host)
            for work, uses, host in works
        ]
        with self._lock:
            name, clock = _name_of(queue), self._clock(queue)
            number = clock.get(name, 0) + 1
            made = self._checked(queue.device.name, name, number, found)
            # The host: all that comes later comes after it. Behind an event that has no place yet:
            # nobody knows what the work comes after.
            if name == HOST or self._unknown.get(name):
                return
            clock[name] = number
            for access in made:
                replaced = partial(_replaces, access, clock=clock)
                self._accesses = list(filterfalse(replaced, self._accesses))
                self._accesses.append(access)

    def add_of_host(self, device: str, work: str, ranges: Iterable[Range]) -> None:
        """Check a call without a queue. Raises: KernelFault."""
        if self._accesses:
            with self._lock:
                self._checked(device, HOST, 0, [(work, ranges, None)])

    def _checked(
        self, device: str, name: str, number: int,
        works: Iterable[tuple[str, Iterable[Range], object]],
    ) -> list[Access]:  # fmt: skip
        made = [
            Access(*one, name, number, work, memory)
            for work, ranges, memory in works
            for one in ranges
            if one[0] < one[1]
        ]
        if not self._unknown.get(name):  # else nobody knows yet what it comes after
            for access in made:
                self._check(access, self._clocks[name], device)
        return made

    def recorded(self, queue: Queue, event: Event) -> None:
        """Note what an event comes after."""
        with self._lock:
            clock = dict(self._clock(queue))
            event._seen = Moment(self, clock, list(self._unknown.get(queue.name, ())))

    def waited(self, queue: Queue, event: Event) -> None:
        """Note that the later work of a queue comes after an event."""
        if isinstance(queue, DirectQueue):  # the host waits now, and so sees the event
            return
        with self._lock:
            self._unknown.setdefault(queue.name, []).append(event)
            self._clock(queue)

    def seen(self, event: Event) -> None:
        """Note that the host knows the event has happened: its later calls come after it."""
        with self._lock:
            _merge(self._clocks[HOST], _known(event, ()) or {})
            self._forget_seen()

    def seen_all(self, device: str) -> None:
        """Note that the host has waited for all queues of a device."""
        with self._lock:
            for queue, (_, of) in list(self._queues.items()):
                if of != device:
                    continue
                _merge(self._clocks[HOST], self._clocks[queue])
            self._forget_seen()

    def _forget_seen(self) -> None:
        host = self._clocks[HOST]
        self._accesses = [old for old in self._accesses if host.get(old.queue, 0) < old.number]
        used = {old.queue for old in self._accesses}
        for name, (reference, _) in list(self._queues.items()):
            queue = reference()
            if name not in used and (queue is None or queue.closed):  # nothing asks for it any more
                del self._queues[name], self._clocks[name]
                self._unknown.pop(name, None)
        for clock in self._clocks.values():
            for name in clock.keys() - self._queues.keys():
                del clock[name]

    def forget(self, start: int, nbytes: int) -> None:
        """Forget accesses of memory that is freed."""
        with self._lock:
            end = start + nbytes
            self._accesses = list(
                filter(lambda old: old.end <= start or old.start >= end, self._accesses)
            )

    def _clock(self, queue: Queue) -> Clock:
        """Return the queue's clock as of now. Its work comes after what the host has done."""
        name = _name_of(queue)
        clock = self._clocks.setdefault(name, {})
        if name != HOST:
            self._queues[name] = ref(queue), queue.device.name
        _merge(clock, self._clocks[HOST])
        unknown = []
        for event in self._unknown.pop(name, []):
            known = _known(event, ())
            _merge(clock, known or {})
            unknown += [event] if known is None else []
        if unknown:
            self._unknown[name] = unknown
        return clock

    def _check(self, access: Access, clock: Clock, device: str) -> None:
        for old in self._accesses:
            apart = old.end <= access.start or access.end <= old.start
            if apart or not (old.writes or access.writes):
                continue
            if old.queue != access.queue and clock.get(old.queue, 0) < old.number:
                first, last = max(old.start, access.start), min(old.end, access.end)
                verbs = ["writes" if one.writes else "reads" for one in (access, old)]
                waits = f"{access.queue}.wait(event of {old.queue})"
                if access.queue == HOST:
                    waits = f"wait for an event of {old.queue}"
                raise KernelFault(
                    access.work,
                    f"{access.queue} {verbs[0]} {last - first} bytes that {old.work} in "
                    f"{old.queue} {verbs[1]}, and nothing orders the two",
                    got=f"bytes {first:#x} to {last:#x}",
                    device=device,
                    fix=f"Before it: {waits}, recorded behind the {old.work}.",
                )


order = Order()


def _is_checked(device: object) -> bool:
    return isinstance(device, CPUDevice) and device.checked


def _name_of(queue: Queue) -> str:
    return HOST if isinstance(queue, DirectQueue) else queue.name


def ranges_of(uses: Iterable[tuple[Buffer, bool]]) -> list[Range]:
    """Return the addresses of buffers that are read or, where it says True, written."""
    return [
        (buffer._buf, buffer._buf + buffer.nbytes, writes)
        for buffer, writes in uses
        if _is_checked(buffer._device)
    ]


def range_of(memory: memoryview, writes: bool) -> Range:
    """Return the addresses of memory of the host."""
    start = int(np.frombuffer(memory, np.uint8).__array_interface__["data"][0])
    return start, start + memory.nbytes, writes


def _replaces(new: Access, old: Access, clock: Clock) -> bool:
    """Tell whether whatever conflicts with the old access conflicts with the new one, too."""
    within = new.start <= old.start and old.end <= new.end
    later = old.queue == new.queue or clock.get(old.queue, 0) >= old.number
    return within and later and (new.writes or not old.writes)


def _known(event: Event, asked: tuple[Event, ...]) -> Clock | None:
    """Return what an event comes after; None while it waits for one that is not recorded yet."""
    moment = event._seen
    if not isinstance(moment, Moment):  # of the host, or recorded before anything was checked
        return {} if event.queue is not None or event._done else None
    while moment.after:
        first = moment.after[0]
        known = None if first in asked else _known(first, (*asked, event))
        if known is None:
            return None
        _merge(moment.clock, known)
        moment.after.remove(first)
    return moment.clock


def _merge(clock: Clock, other: Clock) -> None:
    for queue, number in other.items():
        if number > clock.get(queue, 0):
            clock[queue] = number

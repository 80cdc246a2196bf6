"""The records that a profile consists of, one for each event, and adding one to each profile."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from threading import get_ident, local
from typing import Any, NamedTuple

from hal_core.profiling.host_clock import Times

DEFAULT_QUEUE = "default queue"  # as traces name it; events of it have no name
of_thread = local()  # `.queue`: the name of the queue whose work this thread does
open_profiles: tuple[Entries, ...] = ()  # replaced as a whole, so readers need no lock
# Called when a profile or a capture begins or ends; for shortcuts that bypass what these two see.
shortcuts: list[Callable[[], object]] = []


def changed() -> None:
    """Let the shortcuts follow `open_profiles`, and the captures of graphs."""
    for follow in shortcuts:
        follow()


class Entries:
    """The parts of the last `limit` events, in the order in which they were recorded."""

    def __init__(self, limit: int) -> None:
        self._entries: deque[tuple[Any, ...]] = deque(maxlen=limit)
        self._numbers = itertools.count()


class ProfileEvent(NamedTuple):
    """One piece of work and its time.

    Units: nanoseconds of `time.perf_counter_ns`, for every device.
    """

    kind: str
    name: str  # of the kernel or the range; else the kind
    device: str  # canonical name; empty for a range
    start_ns: int
    end_ns: int
    nbytes: int  # of memory, or of a compiled kernel; 0 for a launch and a range
    thread: int  # `threading.get_ident()` of the thread that asked, or that does the queue's work
    queue: str = ""  # name of the queue that did it; empty for the default one, and for the host

    @property
    def seconds(self) -> float:
        """The duration."""
        return (self.end_ns - self.start_ns) * 1e-9


class ProfileDeviceEvent(ProfileEvent):
    """An event of memory: "alloc", "free", "copyin", "copyout", "copy" (device to device), "fill";
    or "wait": the queue waited for an event of another queue, which `name` names.

    Allocations and frees are timed by the host, all else by the device.
    """

    __slots__ = ()


class ProfileProgramEvent(ProfileEvent):
    """An event of a kernel: "launch", timed by the device; "compile", or "reuse" if the compile
    cache had the binary, timed by the host."""

    __slots__ = ()


class ProfileRangeEvent(ProfileEvent):
    """A block `with hal.profile_range(name):`, timed by the host; its kind is "range"."""

    __slots__ = ()


def record(
    kind_of: type[ProfileEvent], kind: str, name: str, device: str,
    times: tuple[int, int] | Times, nbytes: int = 0, queue: str = "",
) -> None:  # fmt: skip
    """Add an event of this thread to every open profile.

    Concurrency: takes no lock, as finalizers record too; each step is one under the GIL.
    """
    queue = queue or getattr(of_thread, "queue", "")
    event = kind_of, kind, name, device, times, nbytes, get_ident(), queue
    for profile in open_profiles:
        profile._entries.append((next(profile._numbers), *event))

"""The end of a queue's work, when the queue or its device is closed or nobody refers to it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any
from weakref import ref

from hal_core.errors import InvalidState
from hal_core.queue.event import Event, Failure, name_of, obstacle, unset

if TYPE_CHECKING:
    from hal_core.device.base import Compiled

_LOOK_SECONDS = 0.05  # between two looks whether a device that is being closed waits in vain


class Freed(ref[Any]):
    """Stands for a queue that was freed among the ends of its device, which Python itself adds.

    A finalizer would lose the end of the work if Ctrl-C came within it.
    """

    end: Event


def end_of(left: Event | Freed) -> Event:
    """Return the end of the work of a queue that was dropped."""
    return left.end if isinstance(left, Freed) else left


class Rest(Event):
    """The end of a closed queue, which records no event. It waits for what the queue waits for."""

    def _poll(self) -> bool:
        return self.queue is None or self.queue._wait_rest(0.0)

    def _sleep(self, seconds: float) -> None:
        if self.queue is not None:
            self.queue._wait_rest(seconds)


def reached(event: Event, seconds: float) -> bool:
    """Wait for the end of work; False when the time has passed. Raises no failure.

    Raises: InvalidState when it can never happen; a wait that closes a circle is given up.
    """
    try:
        return event._reached(seconds)
    except InvalidState as error:
        if obstacle(event)[1]:
            _abandon(event, error.problem)
        raise


def finish(event: Event, device: Compiled) -> None:
    """Wait for the end of work of a device that is closed; give up what keeps it from happening."""
    while not event._is_over():
        event._check_outside("close")
        event._sleep(_LOOK_SECONDS)
        if not event._is_over() and (obstacle(event)[1] or unset(event) is not None):
            _abandon(event, f"{device.name} was closed")


def _abandon(event: Event, why: str) -> None:
    """End a wait that keeps an event from ever happening; the work behind that wait fails."""
    for one, waited in pairwise(obstacle(event)[0]):
        # A driver waits for its own events by itself. What was waited for before it was recorded,
        # as one event of each circle was, is a plain event, of which it is told.
        if type(waited) is Event:
            text = f"{why} while {name_of(one)} waited for {waited!r}"
            waited._happen(Failure("wait", name_of(one), InvalidState("wait", text)))
            return

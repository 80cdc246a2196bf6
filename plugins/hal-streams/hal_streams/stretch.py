"""The work between two marks of a stream: what it needs, what happens at its end.

launch f, launch g, record e      one stretch: it keeps what f and g use; at its end e happens
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hal_core.errors import DeviceFault, HalError, InvalidState
from hal_core.queue import Event, Failure, PolledEvent
from hal_streams.driver import CAPTURED_EVENT, CAPTURING

if TYPE_CHECKING:
    from hal_streams.marks import Mark


def nothing() -> None:
    """Stand where a weak reference may."""


class StreamEvent(PolledEvent):
    """An event of the driver in the stream of a queue."""

    queue: Any  # a StreamQueue
    _mark: Mark | None  # once it is in the stream
    writes: Sequence[memoryview] = ()  # memory of the host that is complete when it has happened

    def _poll(self) -> bool:
        self.queue.look()
        return self._done

    def _check_can_happen(self) -> None:
        if (unseen := self.queue._unseen) is not None:
            raise InvalidState("wait", unseen.problem, device=unseen.device, fix=unseen.fix)
        super()._check_can_happen()

    def _happen(self, failure: Failure | None) -> None:
        self.writes = ()
        super()._happen(failure)


class Stretch:
    """The work between two marks of a stream, and what it needs until then."""

    def __init__(self) -> None:
        self.mark: Mark | None = None  # its end; None while it grows
        self.names: list[str] = []  # "launch of saxpy"
        self.keep: list[Any] = []
        self.finish: list[Callable[[], object]] = []  # what the host does when it is done
        self.dests: list[memoryview] = []  # memory of the host that is written by then
        # Of other devices, whose failures are not this one's, or of queues that write to the host.
        self.waited: list[StreamEvent] = []
        self.event: Callable[[], Event | None] = nothing  # at its end, a weak reference
        self.is_large = False  # it uses a large pinned block

    def comes_after(self) -> bool:
        """Tell whether all events that it waits for have happened. Looks at their queues."""
        return all(event._is_over() for event in self.waited)

    def end(self) -> None:
        """Do what the host does when the work is done, once."""
        while self.finish:
            self.finish[0]()
            del self.finish[0]


class Dropped(PolledEvent):
    """The end of the work of a queue that nobody refers to; its stream is destroyed then."""

    def __init__(self, queue: Any, stream: Any, rest: list[Stretch]) -> None:
        super().__init__()
        self._device, self._stream, self._borrowed = queue.device, stream, queue.borrowed
        self._keeps = queue.keeps  # or the owner of a borrowed stream would destroy it now
        self._is_legacy = queue.is_legacy
        self._lock = queue._lock
        self._rest = rest
        self._mark: Mark | None = None  # behind the work; others may put more on their stream

    def _poll(self) -> bool:
        device = self._device
        if not all(stretch.comes_after() for stretch in self._rest):
            return False
        with self._lock:
            if self._done or device.closed:
                return True
            try:
                if self._is_legacy:
                    device.own("wait")
                if self._rest and self._mark is None:
                    self._mark = device.marks.record(self._stream)
                if self._mark and not device.call("wait", device.api.is_reached, self._mark.handle):
                    return False
                for stretch in self._rest:
                    stretch.end()
            except DeviceFault:  # the context is lost, and its memory with it
                pass
            except HalError as error:
                if error.got in CAPTURING:
                    if error.got == CAPTURED_EVENT:
                        self._mark = None
                    return False
                device.in_doubt.append((self._rest, self._keeps))
            if not self._borrowed:
                with suppress(HalError):
                    device.call("close", device.destroy_stream, self._stream)
            self._rest, self._keeps, self._mark = [], None, None
            self._happen(None)
        return True

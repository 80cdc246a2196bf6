"""Queues over streams that exist: the device's own, and those of other libraries."""

from __future__ import annotations

import operator
from functools import partial
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

from hal_core.errors import HalError, InvalidArgument
from hal_core.queue import Event, Failure
from hal_streams.queue import StreamQueue
from hal_streams.stretch import Dropped, StreamEvent, Stretch

if TYPE_CHECKING:
    from hal_core.queue import Keep
    from hal_streams.device import StreamDevice

_PER_THREAD = 2  # CU_STREAM_PER_THREAD, hipStreamPerThread

# Packages whose streams tell their handle by an attribute; others have `__cuda_stream__`.
_HANDLES = {"torch": "cuda_stream", "cupy": "ptr", "pycuda": "handle"}


class DefaultStreamQueue(StreamQueue):
    """The stream of calls without `queue=`.

    Its `wait` for an event that is in no stream, or behind a copy to pageable memory, waits on the
    calling thread, as those calls cannot be held. What the driver refuses is raised at once.

    As there is no other default queue to be made, a failure ends none of its later work: the events
    that are pending then have it, or if there are none the next one.
    """

    def __init__(self, device: StreamDevice) -> None:
        super().__init__(device, device.stream, f"the default queue of {device.name}")
        self._untold: Failure | None = None  # of which no event knows

    def _copyout(self, dest: memoryview, src: int, keep: Keep) -> None:
        # As without `queue=`: the device's `synchronize` and `close` wait for its stream alone.
        self.device.allocator._copyout(dest, src)

    def _wait(self, event: Event) -> None:
        if (
            not isinstance(event, StreamEvent)
            or event.queue.device.api is not self.device.api
            or event._mark is None
            or event.writes
        ):
            event.wait()
        elif event._is_over():
            event._raise_failure("wait")
        super()._wait(event)

    def _wait_now(self, event: Event) -> None:
        super()._wait_now(event)
        failure, self._failure = self._failure, None
        if failure is not None:  # the event has failed since `_wait` asked it
            raise failure.to_raise("wait")

    def _is_over(self, stretch: Stretch) -> bool:
        is_told = any(one.event() is not None for one in self._pending)
        is_over = super()._is_over(stretch)
        if self._failure is not None:
            for one in self._pending:
                self._let_happen(one)
            if self._growing.names or not is_told:
                self._untold = self._failure
            self._failure = self._passed = None
        return is_over

    def _mark(self, event: Event | None) -> None:
        if event is not None and self._untold is not None:
            self._outside.append(partial(event._happen, self._untold))
            self._untold = None
            return
        super()._mark(event)

    def _refused(self, name: str, error: HalError) -> None:
        raise error

    def _stop(self) -> None:
        self.closed = True


def wrap(device: StreamDevice, obj: Any) -> StreamQueue | None:
    """Return a queue over another library's stream, None for an object that is no stream.

    A stream is an object with `__cuda_stream__`, one of PyTorch, CuPy or PyCUDA, or its handle.
    Raises: InvalidArgument for what the driver does not know.
    """
    handle = obj if type(obj) is int else None
    protocol = getattr(obj, "__cuda_stream__", None)
    if protocol is not None:
        handle = operator.index((protocol() if callable(protocol) else protocol)[1])
    elif handle is None:
        package = type(obj).__module__.partition(".")[0]
        handle = getattr(obj, _HANDLES.get(package, ""), None)
    if handle is None:
        return None
    if handle == _PER_THREAD:
        problem = "the per-thread default stream is another one in each thread"
        fix = "Wrap a stream of its own."
        raise InvalidArgument("wrap", problem, got=handle, device=device.name, fix=fix)
    if handle < 0:
        raise InvalidArgument("wrap", "no handle of a stream", got=handle, device=device.name)
    with device.own("wrap"):
        if device.api.is_capturing(handle):
            problem, fix = "the stream is being captured", "Wrap it before the capture, or after."
            raise InvalidArgument("wrap", problem, got=hex(handle), device=device.name, fix=fix)
        device.api.is_done(handle)
        try:
            device.marks.record(handle)
        except InvalidArgument:
            problem, fix = "a stream of another device", "Wrap it for that device."
            raise InvalidArgument(
                "wrap", problem, got=hex(handle), device=device.name, fix=fix
            ) from None
    made = StreamQueue(device, handle, f"a borrowed queue of {device.name}")
    made.keeps = obj
    return made


def drain(device: StreamDevice) -> None:
    """Wait for what the streams of a device's queues have now, also of those that were dropped."""
    for queue in device._queues:
        if isinstance(queue, StreamQueue):
            queue.drain()
    for end in list(device._ends):
        if isinstance(end, Dropped):
            end._reached(TIMEOUT_MAX)

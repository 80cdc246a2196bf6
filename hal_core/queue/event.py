"""Events: moments in the work of queues, which programs wait for."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from hal_core.concurrency import Late, OfThisProcess, make_calls, poll, suppress, unless_of_a_signal
from hal_core.errors import DeviceFault, InvalidArgument, InvalidState, check_class
from hal_core.queue import watcher

if TYPE_CHECKING:
    import asyncio
    from asyncio import AbstractEventLoop, Future

    from hal_core.queue.base import Queue
else:
    asyncio = Late("asyncio")

log = logging.getLogger("hal_core")

_LOOK_SECONDS = 0.5  # between two looks whether a wait can still end
_LONG_SECONDS = 30.0  # until a wait without a limit says that nobody has set its event


class Failure(NamedTuple):
    """The work that failed in a queue. Everything behind it is dropped, and fails with it."""

    work: str  # "launch of saxpy"
    queue: str
    error: BaseException

    def to_raise(self, operation: str) -> DeviceFault:
        """Return the exception for one wait; each wait has an exception of its own."""
        problem = f"{self.work} failed in {self.queue}: {self.error}"
        fix = "Work queued behind it was dropped. Make a new queue."
        fault = DeviceFault(operation, problem, fix=fix)
        fault.device = getattr(self.error, "device", None)  # the problem names it already
        fault.__cause__ = self.error
        return fault


class Event(OfThisProcess):
    """A moment that happens once: work of a queue is done, or the host has called `set`.

    `queue.record()` gives the event of all work queued so far. `hal.Event()` makes one that has no
    queue yet: `queue.record(event)` gives it its place, or `event.set()` makes it happen.

    Concurrency: every method may be called from any thread, and from any asyncio loop.
    """

    queue: Queue | None = None  # that records it

    # Here, and not in each object: a queued copy makes an event.
    _place = sys.maxsize  # among the waits and records of its queue
    _waits: Iterable[tuple[int, Event]] = ()  # of its queue: a place, and what comes there
    _mark: Any = None  # of the driver, in the queue: it knows when the event happened
    _done = False
    _failure: Failure | None = None
    _ns = 0  # of the host's clock, once it has happened
    # The first call gives an event a deque of its own.
    _callbacks: ClassVar[deque[Callable[[], object]]] = deque(maxlen=0)
    _seen: Callable[[Event], None] | None = None  # in checked mode: called when the host knows it

    _instead = "Wait for it here, and send the result."

    def __init__(self) -> None:
        self._end = threading.Lock()  # held until it happens
        self._end.acquire()

    # -- what a native event fills in

    def _poll(self) -> bool:
        """Return True once the event has happened; never wait."""
        return self._done

    def _sleep(self, seconds: float) -> None:
        """Wait until the event happens, at most `seconds`."""
        try:
            self._end.acquire(timeout=seconds)
        finally:
            # Whoever has got the lock lets others go on. No function of ours is called between
            # the two: Ctrl-C behind the first would leave those others asleep.
            if self._done:
                try:
                    self._end.release()
                except unless_of_a_signal(RuntimeError):  # another was faster
                    pass

    def _when_done(self, call: Callable[[], object]) -> None:
        """Call `call()` in some thread once the event has happened; at once if it has already."""
        vars(self).setdefault("_callbacks", deque()).append(call)
        if self._done:
            make_calls(self._callbacks)

    def _forget(self, call: Callable[[], object]) -> None:
        """Take back a call of `_when_done`, which nobody waits for any more."""
        with contextlib.suppress(ValueError, IndexError):  # made now, or others change the deque
            self._callbacks.remove(call)

    # -- for everybody

    @property
    def done(self) -> bool:
        """True once the event has happened, also by a failure. Never waits. Raises: ForkError."""
        over = self._done or self._poll()
        if not over and self.queue is not None and self.queue.forked:
            raise self.queue._fork_error("done")
        if over and self._seen is not None:
            self._seen(self)
        return over

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event has happened; return False when `timeout` passes first.

        The wait takes no processor time, and Ctrl-C ends it.

        Units: seconds.
        Raises: DeviceFault naming the program when work before the event failed; InvalidState when
        the event can never happen, because queues wait for each other.
        """
        if not self._reached(seconds_of(timeout, "wait")):
            return False
        self._raise_failure("wait")
        return True

    def __await__(self) -> Generator[Any, None, None]:
        """Let the asyncio task go on once the event has happened. Raises: as `wait` does."""
        if not self._is_over():
            waiting = _Await(asyncio.get_running_loop())
            try:
                self._when_done(waiting)
                while True:
                    if self._is_over():
                        break
                    self._check_can_happen()
                    yield from waiting.pause(_LOOK_SECONDS)
            finally:
                self._forget(waiting)
        self._raise_failure("await")

    def seconds_since(self, earlier: Event) -> float:
        """Return the seconds of device time that lie between another event and this one.

        Raises: InvalidState when one of them has not happened yet, or has failed; InvalidArgument
        for an event of another device, or one that the host has set, which was timed by another
        clock.
        """
        check_class(earlier, Event, "seconds_since", "queue.record() is one.")
        for event in (earlier, self):
            if not event.done:
                fix = "Call wait() first."
                raise InvalidState("seconds_since", f"{event!r} has not happened", fix=fix)
            if event._failure is not None:
                fix = "Its wait() says what failed."
                raise InvalidState("seconds_since", f"{event!r} has no time", fix=fix)
        devices = {event.queue and event.queue.device for event in (earlier, self)}
        if len(devices) > 1:
            got = " and ".join(sorted(one.name if one else "the host" for one in devices))
            fix = "Record both in queues of one device: queue.record(event)."
            raise InvalidArgument("seconds_since", "the events have two clocks", got=got, fix=fix)
        if self.queue is not None:
            return self.queue._seconds_between(earlier, self)
        return (self._ns - earlier._ns) * 1e-9

    def set(self) -> None:
        """Make the event happen now; a second call does nothing.

        Raises: InvalidState for an event that a queue records.
        """
        if self.queue is not None:
            raise InvalidState("set", f"{self!r} happens when its queue comes to it")
        self._happen(None)

    # -- for queues

    def _is_over(self) -> bool:
        """Return `done` without telling checked mode that the host knows the event has happened."""
        return self._done or self._poll()

    def _reached(self, seconds: float) -> bool:
        """Wait as `wait` does, without raising a failure. Raises: as `_check_can_happen`."""
        start = monotonic()
        said = seconds < threading.TIMEOUT_MAX / 2  # a device's wait for several has used some up
        while not (self._done or self._poll()):
            passed = monotonic() - start
            if passed >= seconds or seconds > _LOOK_SECONDS:
                self._check_can_happen()
            if passed >= seconds:
                return False
            if not said and passed > _LONG_SECONDS:
                said = True
                _say_what_is_unset(self, passed)
            self._sleep(min(seconds - passed, _LOOK_SECONDS))
        return True

    def _happen(self, failure: Failure | None) -> None:
        """Let the event happen; a second call changes nothing. Raises: Ctrl-C, after all is done.

        Nobody else would wake those who sleep, or make the calls.
        """
        try:
            self._end_with(failure)
            if self._callbacks:
                make_calls(self._callbacks)
        except BaseException:
            self._end_with(failure)
            make_calls(self._callbacks)
            raise

    def _end_with(self, failure: Failure | None) -> None:
        if not self._done:
            self._failure, self._ns = failure, perf_counter_ns()
            try:
                self._done = True
                self._end.release()  # as in `_sleep`: Ctrl-C comes before both, or behind both
            except unless_of_a_signal(RuntimeError):  # another thread was faster
                pass

    def _raise_failure(self, operation: str) -> None:
        if self._seen is not None:
            self._seen(self)
        if self._failure is not None:
            raise self._failure.to_raise(operation)

    def _check_can_happen(self) -> None:
        """Raise what `_obstacle` finds: ForkError, or InvalidState that shows a circle."""
        queue = self.queue
        if queue is not None and queue.forked:
            raise queue._fork_error("wait")
        self._check_outside("wait")
        if not self._waits:  # as those of most queues: nothing can be a circle
            return
        circle, closed = obstacle(self)
        if closed:
            names = " waits for ".join(map(name_of, circle))
            fix = "Record the event before the other queue waits for it, or set() it."
            raise InvalidState("wait", f"queues wait for each other: {names}", fix=fix)

    def _check_outside(self, operation: str) -> None:
        """Raise InvalidState if this thread is in a call that the event waits for."""
        for queue in (event.queue for event in obstacle(self)[0]):
            if queue is not None and queue._is_in_call():
                what = "a finalizer or a signal's handler"
                problem = f"{what} waits within a call that {queue.name} waits for"
                fix = "Note there what has come, and wait afterwards."
                raise InvalidState(operation, problem, fix=fix)

    def __repr__(self) -> str:
        state = "failed" if self._failure else "done" if self._is_over() else "pending"
        return f"<Event {self.queue.name if self.queue else 'of the host'} {state}>"


class PolledEvent(Event):
    """An event of a driver that can only be asked; `_poll` asks it, and nobody sleeps at a lock."""

    __init__ = object.__init__

    def _end_with(self, failure: Failure | None) -> None:
        if not self._done:
            self._failure, self._ns, self._done = failure, perf_counter_ns(), True

    def _sleep(self, seconds: float) -> None:
        poll(self._poll, seconds)

    def _when_done(self, call: Callable[[], object]) -> None:
        watcher.watch(self._poll, call)

    def _forget(self, call: Callable[[], object]) -> None:
        watcher.forget(call)


def obstacle(event: Event) -> tuple[list[Event], bool]:
    """Follow which event waits for which from a pending one on; return them, and True for a circle.

    The last one waits for nothing; that of a circle is its first.
    """
    way: list[Event] = []
    waited: Event | None = event
    while waited is not None and not waited._is_over():
        if waited in way:
            return [*way[way.index(waited) :], waited], True
        way.append(waited)
        before = [event for place, event in list(waited._waits) if place < waited._place]
        waited = next((event for event in before if not event._is_over()), None)
    return way, False


def forget_over(waits: deque[tuple[int, Event]]) -> None:
    """Take out the first waits of a queue that are over, as their events keep other queues."""
    with contextlib.suppress(IndexError, ValueError):  # none is left; another takes them out
        while True:  # a loop in a `with` ends inside of it, where Ctrl-C is heard
            first = waits[0]
            if not first[1]._is_over():
                break
            waits.remove(first)


def unset(event: Event) -> Event | None:
    """Return the event of the host that another one waits for in the end, if it is not set."""
    way, is_circle = obstacle(event)
    # Nobody sets the end of a dropped queue's work, which is of another class.
    is_unset = not is_circle and way and way[-1].queue is None and type(way[-1]) is Event
    return way[-1] if is_unset else None


def name_of(event: Event) -> str:
    """Return the name of the queue that waits where an event stands."""
    return event.queue.name if event.queue is not None else "a queue that was dropped"


def _say_what_is_unset(event: Event, seconds: float) -> None:
    """Log which event of the host a wait depends on, as nothing else would show it."""
    waited = unset(event)
    if waited is not None:
        way = "".join(f" {name_of(one)} waits for" for one in obstacle(event)[0] if one != waited)
        text = "a wait without a timeout has taken %.0f s:%s %s, which nobody has set"
        log.warning(text, seconds, way, repr(waited))  # as it is now


def seconds_of(timeout: float | None, operation: str) -> float:
    """Return a timeout as seconds, None as the longest that Python waits for.

    Raises: InvalidArgument.
    """
    if timeout is None:
        return threading.TIMEOUT_MAX
    number: Any = timeout
    try:  # an int may be beyond a float; text has no such method
        seconds = number if isinstance(number, int) else number.__float__()
    except (AttributeError, TypeError):
        seconds = float("nan")
    if seconds != seconds:
        problem = "timeout must be a number of seconds or None"
        raise InvalidArgument(operation, problem, got=timeout)
    return min(max(0.0, seconds), threading.TIMEOUT_MAX)


class _Await:
    """One `await` of an event. Called in any thread once the event has happened."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._future: Future[None] | None = None

    def __call__(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end)

    def pause(self, seconds: float) -> Generator[Any, None, None]:
        """Let the task go on when the event has happened, or after some seconds."""
        self._future = self._loop.create_future()
        timer = self._loop.call_later(seconds, self._end)
        try:
            yield from self._future
        finally:
            timer.cancel()

    def _end(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

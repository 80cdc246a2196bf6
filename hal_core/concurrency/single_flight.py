"""Work that several threads ask for and one does: loading, listing and opening."""

from __future__ import annotations

import copy
import sys
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from hal_core.concurrency.ctrl_c import is_of_a_signal
from hal_core.concurrency.fork import fork_safe_lock, forkable
from hal_core.concurrency.imports import IMPORT_SYSTEM, is_importing
from hal_core.errors import InvalidState

T = TypeVar("T")

_IMPORT_POLL_SECONDS = 0.05


class _Flight:
    """Work in progress. `error` or `result` is set before the end."""

    def __init__(self, owner: int) -> None:
        self.owner = owner  # thread that does the work
        self.ended = False
        self.end = threading.Lock()  # held until then; an Event's `set` has places for Ctrl-C
        self.end.acquire()
        self.result: Any = None
        self.error: BaseException | None = KeyboardInterrupt()  # until there is another outcome


class SingleFlight:
    """Runs the work of each key once at a time, without dead-lock.

    Every failure reaches all threads that waited, except what a signal raises, as Ctrl-C does: that
    belongs to the thread that got it, and a waiter takes the work over. A result is forgotten after
    the flight.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._flights: dict[Hashable, _Flight] = {}
        self._waiting: dict[int, _Flight] = {}  # thread -> the flight that it waits for
        forkable.add(self)

    def run(self, key: Hashable, work: Callable[[], T], *, operation: str) -> T:
        """Return what `work` returns here or in the thread that does the work of `key` now.

        Raises: what `work` raises; InvalidState when waiting could never end, because the work in
        progress waits, directly or through other threads, for the calling one.
        """
        me = threading.get_ident()
        mine = _Flight(me)
        try:
            while True:
                flight = self._join(key, mine, operation)
                if flight is mine:
                    break
                if flight.error is None:
                    return flight.result  # type: ignore[no-any-return]
                if isinstance(flight.error, Exception):
                    raise fresh_copy(flight.error)
            mine.result = work()
            mine.error = None
            return mine.result  # type: ignore[no-any-return]
        except BaseException as error:
            # Else it came while waiting, or is this thread's own: of a signal.
            if key in self._flights and self._flights[key] is mine and not is_of_a_signal(error):
                mine.error = error
            raise
        finally:
            # Without a call before the last line, behind which Ctrl-C would leave the flight.
            if key in self._flights and self._flights[key] is mine:
                del self._flights[key]
            mine.ended = True
            mine.end.release()

    def _join(self, key: Hashable, mine: _Flight, operation: str) -> _Flight:
        """Return `mine`, now noted as the work of `key`, or that of another thread, at its end."""
        me = mine.owner
        # A finalizer or signal handler may ask while its thread waits, which waits on afterwards.
        before = self._waiting.get(me)
        try:
            with self._lock:
                flight = self._flights.setdefault(key, mine)
                if flight is mine:
                    return mine
                self._check_circle(flight, operation)
                self._waiting[me] = flight
            # The owner may come to wait for a module that this thread is importing, of which the
            # table knows nothing; so an importing thread looks for a circle now and then.
            while True:
                if flight.ended or not is_importing():
                    break
                time.sleep(_IMPORT_POLL_SECONDS)
                with self._lock:
                    self._check_circle(flight, operation)
            with flight.end:
                return flight
        finally:
            if before is None:
                self._waiting.pop(me, None)
            else:
                self._waiting[me] = before

    def _check_circle(self, flight: _Flight, operation: str) -> None:
        """Follow who waits for whom, from the flight's owner. Raises: InvalidState when that leads
        to the calling thread."""
        me, owner = threading.get_ident(), flight.owner
        seen = set[int]()
        while owner not in seen:
            if owner == me:
                problem = "it is already under way and waits for this very call"
                fix = "A plugin must not use a device while it imports or opens that device."
                raise InvalidState(operation, problem, fix=fix)
            seen.add(owner)
            pending = self._waiting.get(owner)
            if pending is not None and not pending.ended:  # else it is only waking up
                owner = pending.owner
                continue
            # Perhaps it waits for an import lock. Source: _ModuleLock.acquire in
            # importlib._bootstrap, the same from Python 3.4 to 3.14, which sees circles of import
            # locks, and none in which a flight is one of the links.
            frame = sys._current_frames().get(owner)
            place = (frame.f_code.co_filename, frame.f_code.co_name) if frame else None
            if frame and place == (IMPORT_SYSTEM, "acquire"):
                owner = getattr(frame.f_locals.get("self"), "owner", None) or owner

    def _after_fork(self) -> None:
        """Forget the work of threads that a child does not have; its own thread may be at work."""
        me = threading.get_ident()
        self._flights = {key: one for key, one in self._flights.items() if one.owner == me}
        self._waiting.clear()


def fresh_copy(error: Exception) -> Exception:
    """Copy an error that is raised again: its traceback would grow, and keep frames alive."""
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh


flights = SingleFlight()  # loading, listing and opening, for every registry of the process

"""What threads and forked processes share: single flights, weak lists, drivers after a fork.

Why drivers do not survive a fork, and what the refusal costs: docs/design/fork.md.
"""

from __future__ import annotations

import copy
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar
from weakref import ref

from hal_core.errors import ForkError, InvalidState

if TYPE_CHECKING:
    from hal_core.device import Compiled

T = TypeVar("T")


class _Flight:
    """Work in progress. `error` or `result` is set before `done`."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class SingleFlight:
    """Runs each key's work once at a time, without dead-lock.

    Every failure reaches all who waited, except a KeyboardInterrupt: it belongs to the thread
    that got it, and a waiter takes the work over. Nothing is remembered after the flight.
    A finalizer may ask while its thread waits: it waits first.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may ask in the middle
        self._flights: dict[Hashable, _Flight] = {}
        self._waiting: dict[int, _Flight] = {}  # thread -> what it waits for

    def run(self, key: Hashable, work: Callable[[], T], *, operation: str) -> T:
        """Raises: what `work` raises; InvalidState when waiting could never end, because the
        work in progress waits, directly or through others, for this thread."""
        me = threading.get_ident()
        before = self._waiting.get(me)
        while True:
            with self._lock:
                flight = self._flights.get(key)
                if flight is None:
                    flight = self._flights[key] = _Flight(me)
                    break
                if self._waits_for(flight, me):
                    raise InvalidState(
                        operation,
                        "it is already under way and waits for this very call",
                        fix="A plugin must not use a device while it imports or opens that device.",
                    )
                self._waiting[me] = flight
            try:
                flight.done.wait()
            finally:
                with self._lock:
                    self._stop_waiting(me, before)
            if flight.error is None:
                return flight.result  # type: ignore[no-any-return]
            if isinstance(flight.error, Exception):
                raise again(flight.error)
        return self._fly(key, flight, work)

    def _fly(self, key: Hashable, flight: _Flight, work: Callable[[], T]) -> T:
        try:
            flight.result = work()
            return flight.result  # type: ignore[no-any-return]
        except BaseException as error:
            flight.error = error
            raise
        finally:
            with self._lock:
                del self._flights[key]
            flight.done.set()

    def _stop_waiting(self, thread: int, before: _Flight | None) -> None:
        if before is None:
            del self._waiting[thread]
        else:
            self._waiting[thread] = before

    def _waits_for(self, flight: _Flight, thread: int) -> bool:
        """Whether the flight's owner is `thread`, or waits for it through other flights."""
        following: _Flight | None = flight
        while following is not None:
            if following.owner == thread:
                return True
            following = self._waiting.get(following.owner)
        return False


def again(error: Exception) -> Exception:
    """A copy to raise: raising one object twice grows its traceback and keeps frames alive."""
    try:
        fresh = copy.copy(error)
    except Exception:  # a class of somebody else's that cannot be copied
        return error
    fresh.__cause__ = error.__cause__
    return fresh


def is_importing() -> bool:
    """Whether this thread is in the middle of an import, and so holds import locks.

    Such a thread must not wait for another one's import: the other may need a module that this
    one is importing. Python's own import lock sees that circle, nobody else's lock does.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


class Living(Generic[T]):
    """What was added and still lives, which is kept by others.

    Concurrency: any thread may add, also while another one iterates; a WeakSet would then raise.
    """

    def __init__(self) -> None:
        self._known: set[ref[T]] = set()

    def add(self, one: T) -> None:
        self._known.add(ref(one, self._known.discard))

    def __iter__(self) -> Iterator[T]:
        """Of what was known at the beginning."""
        return iter([one for known in list(self._known) if (one := known()) is not None])

    def __len__(self) -> int:
        return len(self._known)


# -- fork

devices: Living[Compiled] = Living()  # all that were made here, by whomever
kept: list[object] = []  # a child's, of drivers it may not touch; empty anywhere else


def survives(capabilities: frozenset[str]) -> bool:
    return "subprocess_fork" in capabilities


def refusal(operation: str, device: str) -> ForkError:
    return ForkError(
        operation,
        "the parent process used this driver, which does not survive a fork",
        device=device,
        fix='Start the process with multiprocessing.get_context("spawn"), or fork before '
        "the first use.",
    )


def refusing(operation: str, device: str) -> Callable[..., NoReturn]:
    """A method that raises that, to be put in the place of one."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise refusal(operation, device)

    return refuse


def nothing(*_: Any) -> None:
    """In the place of a method that would call the driver from a finalizer."""


def keep(*things: object) -> None:
    """Never let go of them, at exit neither: a vendor's own finalizer would call the driver, and
    wait for threads that only the parent has."""
    if not kept:
        try:
            from ctypes import py_object, pythonapi
        except ImportError:  # a Python without it; the list goes at exit
            pass
        else:
            pythonapi.Py_IncRef(py_object(kept))
    kept.extend(things)


def _before() -> None:
    """Imports what `keep` needs, while the import locks can still be had."""
    if not all(survives(device.info.capabilities) for device in devices):
        try:
            import ctypes  # noqa: F401
        except ImportError:
            return


def _in_child() -> None:
    for device in devices:
        device._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)

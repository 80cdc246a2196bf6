"""Tools for threads and forked processes: work done once, weak sets, waiting, locks after a fork.

This module alone calls `os.register_at_fork`. The reasons, and the order of the steps:
docs/design/fork.md.
"""

from __future__ import annotations

import copy
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any, Generic, NoReturn, Self, SupportsIndex, TypeVar
from weakref import ref

from hal_core.errors import ForkError, InvalidState, Unsupported

T = TypeVar("T")


class Living(Generic[T]):
    """A weak set that several threads may iterate and add to; a WeakSet would raise."""

    def __init__(self) -> None:
        self._known: set[ref[T]] = set()

    def add(self, one: T) -> None:
        self._known.add(ref(one, self._known.discard))

    def __iter__(self) -> Iterator[T]:
        # A copy of the set is one step under the GIL, so objects may come and go during the loop.
        return iter([one for known in list(self._known) if (one := known()) is not None])

    def clear(self) -> None:
        self._known.clear()

    def __len__(self) -> int:
        return len(self._known)


def refuse_at_exit(operation: str) -> None:
    """Refuse what may import a module while Python ends. Raises: InvalidState."""
    if getattr(sys, "meta_path") is None:  # noqa: B009  # an import fails from then on
        problem, fix = "Python is ending, and imports nothing more", "Do it before, or by atexit."
        raise InvalidState(operation, problem, fix=fix)


class Late:
    """A module that the first use of an attribute imports. While Python ends it stays usable.

    An import statement fails by then, for modules that are loaded, too.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if "_module" not in vars(self):
            refuse_at_exit(f"import {self._name}")
            self._module = import_module(self._name)
        value = getattr(self._module, attribute)
        setattr(self, attribute, value)  # no call of Python from now on
        return value


# -- locks and other state after a fork


# Every hal.Compiled made in this process. Its type is not named: it would be a circle of imports.
devices: Living[Any] = Living()
forkable: Living[Any] = Living()  # registries, thread pools, ...: objects with an `_after_fork()`
_locks: Living[threading.RLock] = Living()
_held_locks: list[threading.RLock] = []
_FORK_WAITS_SECONDS = 5.0  # for imports of other threads, which may never end


def fork_safe_lock() -> threading.RLock:
    """Return a re-entrant lock that is free in a forked child, whichever thread held it.

    The lock of a thread that the child does not have would never be released.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def run_unless_busy(lock: threading.RLock, work: Callable[[], object]) -> None:
    """Call `work` with the lock held, unless another thread or a caller of this one holds it."""
    if lock._is_owned():  # type: ignore[attr-defined]
        return
    try:
        if not lock.acquire(blocking=False):  # inside, as Ctrl-C may come behind it
            return
        work()
    except BaseException:
        if lock._is_owned():  # type: ignore[attr-defined]
            lock.release()
        raise
    lock.release()


class Thread(threading.Thread):
    """A thread whose start Ctrl-C may end, and not break: the thread then runs, or does not.

    `start` waits for the new thread with an Event, whose lock stays held where Ctrl-C comes in the
    middle of Python's own code: the new thread would wait for it for ever.
    """

    def __init__(
        self, name: str, target: Callable[..., object], *args: Any, daemon: bool = True
    ) -> None:
        super().__init__(target=target, name=name, args=args, daemon=daemon)
        self._started = _Started()

    def start(self) -> None:
        """Start it. Raises: RuntimeError when there can be no new thread."""
        try:
            super().start()
        except RuntimeError as error:
            heard = error.__context__
            if heard is not None and not isinstance(heard, Exception):
                raise heard from None  # Ctrl-C: the exit of a `with` has failed for it
            raise


class _Started:
    """Has of an Event what a thread needs; the lock is held until it is set."""

    def __init__(self) -> None:
        self._done, self._lock = False, threading.Lock()
        self._lock.acquire()

    def is_set(self) -> bool:
        return self._done

    def set(self) -> None:
        self._done = True
        self._lock.release()

    def wait(self) -> None:
        with self._lock:
            pass

    def _at_fork_reinit(self) -> None:
        self._lock = threading.Lock()


def hold_during_fork(lock: threading.RLock) -> None:
    """Make every fork wait for `lock`, which guards state that a child could not repair."""
    _held_locks.append(lock)


def _before_fork() -> None:
    # `never_release` needs ctypes in the child, where an import lock may be held for ever.
    if not all(survives_fork(device.info.capabilities) for device in devices):
        with suppress(ImportError):
            import ctypes  # noqa: F401
    deadline = time.monotonic() + _FORK_WAITS_SECONDS
    while True:
        for lock in _held_locks:
            lock.acquire()
        if not _others_import() or time.monotonic() > deadline:
            return
        _after_fork_in_parent()  # the import may need one of the locks
        time.sleep(1e-3)


def _others_import() -> bool:
    """Tell whether another thread is importing a part of hal: a child, which lacks that thread,
    would wait for the module for ever."""
    if is_importing():  # the others may wait for this thread
        return False
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    for frame in frames.values():
        place: FrameType | None = frame
        while place is not None:
            begins = place.f_code.co_name == "_find_and_load"  # of _IMPORT_SYSTEM
            if begins and str(place.f_locals.get("name")).startswith("hal_"):
                return True
            place = place.f_back
    return False


def _after_fork_in_parent() -> None:
    for lock in reversed(_held_locks):
        lock.release()


def _after_fork_in_child() -> None:
    """Repair the child: locks first, as all else takes them; then devices; then registries, which
    forget their devices."""
    for lock in _locks:
        # Python's own modules renew their locks this way. What the forking thread holds it will
        # release itself: it is the one thread that the child has.
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]
    _after_fork_in_parent()
    with ExitStack() as steps:  # the next is repaired even when one raises
        for one in reversed([*devices, *forkable]):
            steps.callback(one._after_fork)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


# -- what cannot leave the process


class OfThisProcess:
    """Base of objects that no other process can have. A copy is the object itself."""

    _instead: str  # what to send, and what to do with it there

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> str:
        raise Unsupported("pickle", f"{self!r} is of this process alone", fix=self._instead)


# -- work that threads share


def run_each(steps: list[Callable[[], object]]) -> None:
    """Call every step in order, whatever another raises. Raises: Ctrl-C, else the first error.

    A step may append more steps. Ctrl-C loses none that has not begun, and repeats none that has:
    a step must stand to be ended in the middle by it, and never to be done again.
    An ExitStack would do, but for Ctrl-C in its own code and at the start of a step.
    """
    errors: list[BaseException] = []
    while steps:
        try:
            while True:  # the jump back of `while steps` is outside of the `try` in Python 3.13
                if not steps:
                    break
                step = steps[0]
                del steps[0]
                try:
                    step()
                except BaseException as error:
                    errors += [error]
                    if _came_at_start(error):
                        steps[:0] = [step]
        except BaseException as error:  # Ctrl-C between two steps
            errors += [error]
    try:
        if errors:
            raise next((one for one in errors if not isinstance(one, Exception)), errors[0])
    finally:
        del errors  # their tracebacks have this frame


def _came_at_start(error: BaseException) -> bool:
    """Tell whether a signal was heard at the start of the function that the caller called.

    Python looks for signals at RESUME, behind one instruction for each variable that is a cell and
    one for all that are another function's, and before the first line.
    """
    place = error.__traceback__ and error.__traceback__.tb_next  # None: it called a C function
    if place is None:
        return False
    code = place.tb_frame.f_code
    return place.tb_lasti == 2 * (len(code.co_cellvars) + bool(code.co_freevars))


def make_calls(calls: deque[Callable[[], object]]) -> None:
    """Make the calls of a deque in order, and take each out of it. An error of one is logged.

    What Ctrl-C ends in the middle, the next caller makes again. Concurrency: any thread may.
    """
    while calls:
        try:
            call = calls[0]
            del calls[0]  # no `popleft`: behind a call Ctrl-C may come
        except IndexError:  # another thread was faster
            return
        try:
            call()
        except BaseException as error:
            if _may_be_ctrl_c(error):
                calls.appendleft(call)
                raise
            log_failure("an event's callback failed", error)


def log_failure(what: str, error: BaseException) -> None:
    """Log an error of other code for which there is no caller."""
    try:
        from logging import getLogger

        getLogger("hal_core").warning("%s: %s", what, f"{type(error).__name__}: {error}")
    except BaseException as raised:  # of the error's own text, or of the program's handlers
        if _may_be_ctrl_c(raised):
            raise


def _may_be_ctrl_c(error: BaseException) -> bool:
    """Tell whether a signal may have raised the error: only the main thread hears signals."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and not isinstance(error, Exception)


# -- threads that are started when there is work


Servers = dict[int, threading.Thread]  # number of some work -> the one thread that does it


def start_thread(name: str, target: Callable[..., object], *args: Any) -> threading.Thread:
    """Start a daemon thread. Raises: RuntimeError when there can be no new one."""
    thread = Thread(name, target, *args)
    thread.start()
    return thread


def start_server(
    servers: Servers,
    name: str,
    serve: Callable[[], object],
    is_needed: Callable[[], object] | None = None,
    *,
    number: int = 0,
    start: Callable[..., threading.Thread] = start_thread,
) -> None:
    """Start a thread that serves as one of some numbers, unless another one does.

    Raises: InvalidState when there can be no new thread.
    """
    try:
        thread = start(name, serve_alone, servers, number, serve, is_needed)
    except RuntimeError as error:
        fix = "End some threads, or raise the system's limit."
        raise InvalidState(f"start thread {name!r}", str(error), fix=fix) from error
    if is_needed is None:  # it serves for good, so this claim cannot be of a thread that has ended
        servers.setdefault(number, thread)
        return
    for _ in range(_CLAIM_TURNS):  # or the next call would start one, too
        if number in servers or not thread.is_alive():
            return
        time.sleep(0)


def serve_alone(
    servers: Servers,
    number: int,
    serve: Callable[[], object],
    is_needed: Callable[[], object] | None = None,
) -> None:
    """Serve as the only thread of this number: the body of a thread that is started when needed.

    Ctrl-C within the start of a thread leaves open whether there is one, so the next caller starts
    another. Hence the thread itself claims the work, in one step; one that comes too late ends.

    `serve` returns when there is nothing to do. With `is_needed` the claim is then given up, and
    taken again if it is True: work that was added before that step has started no thread. Without
    it the work is over for good.
    """
    me = threading.current_thread()
    while servers.setdefault(number, me) is me:
        try:
            serve()
        except BaseException as error:  # whatever it is, the work behind it must go on
            log_failure(f"the thread {me.name!r} goes on after an error", error)
            time.sleep(_AFTER_ERROR_SECONDS)
            continue
        if is_needed is None:
            return
        del servers[number]
        if not is_needed():
            return


_CLAIM_TURNS = 1000  # that a thread gets for its first step
_AFTER_ERROR_SECONDS = 1e-3  # so that an error that comes again takes no processor


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

    Every failure reaches all threads that waited, except a KeyboardInterrupt: it belongs to the
    thread that got it, and a waiter takes the work over. A result is forgotten after the flight.
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
            if key in self._flights and self._flights[key] is mine:  # else it came while waiting
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
                raise InvalidState(
                    operation,
                    "it is already under way and waits for this very call",
                    fix="A plugin must not use a device while it imports or opens that device.",
                )
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
            if frame and place == (_IMPORT_SYSTEM, "acquire"):
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


_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
_IMPORT_POLL_SECONDS = 0.05


def is_importing() -> bool:
    """Return True in the middle of an import, when this thread holds import locks."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False


flights = SingleFlight()  # loading, listing and opening, for every registry of the process


_LEAST_SLEEP = 20e-6  # seconds; a look takes a core from work on the same cores
_yield_processor: Callable[[], object] = getattr(os, "sched_yield", partial(time.sleep, 0))


def poll(is_done: Callable[[], bool], timeout: float, awake: float = 100e-6) -> bool:
    """Wait until `is_done()`; return False when `timeout` seconds have passed first.

    For drivers that have no wait with a limit, or whose wait is deaf to Ctrl-C. The thread stays
    `awake` for so many seconds: the shortest sleep takes about 100 us. Then, between two looks, it
    sleeps for a sixteenth of the time that has passed, so that a long wait takes no processor from
    others and no wait is much longer for it. Raises: what `is_done` raises.
    """
    start = time.monotonic()
    while not is_done():
        passed = time.monotonic() - start
        if passed >= timeout:
            return False
        if passed < awake:
            _yield_processor()
        else:
            time.sleep(min(max(passed / 16, _LEAST_SLEEP), timeout - passed, 1e-3))
    return True


def is_of_a_signal(error: BaseException) -> bool:
    """Tell whether the handler of a signal raised the error, in the middle of other code.

    SIGTERM often becomes a SystemExit that way, which is the end of the program.
    """
    import signal
    from traceback import walk_tb

    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {code for one in handlers if (code := getattr(one, "__code__", None))}
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))


# -- drivers that a child may not use

never_released: list[object] = []  # parts of abandoned drivers; empty but in a forked child


def survives_fork(capabilities: frozenset[str]) -> bool:
    return "subprocess_fork" in capabilities


def fork_error(operation: str, device: str) -> ForkError:
    return ForkError(
        operation,
        "the parent process used this driver, which does not survive a fork",
        device=device,
        fix='Start the process with multiprocessing.get_context("spawn"), or fork before '
        "the first use.",
    )


def refuse_after_fork(operation: str, device: str) -> Callable[..., NoReturn]:
    """Return a method that raises ForkError; it replaces the real one in a forked child."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise fork_error(operation, device)

    return refuse


def do_nothing(*_: Any) -> None:
    """Replace a method that finalizers call, so that they do not reach the driver."""


def never_release(*things: object) -> None:
    """Keep objects alive beyond the exit of the process: a vendor's finalizer would call the
    driver there, and wait for threads that only the parent has."""
    if not never_released:
        try:
            from ctypes import py_object, pythonapi
        except ImportError:  # a Python without ctypes; the list is cleared at exit
            pass
        else:
            pythonapi.Py_IncRef(py_object(never_released))
    never_released.extend(things)

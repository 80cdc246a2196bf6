"""Threads that are started when there is work, and waiting with a time limit."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from hal_core.concurrency.ctrl_c import log_failure, unless_of_a_signal
from hal_core.errors import InvalidState

Servers = dict[int, threading.Thread]  # number of some work -> the one thread that does it
_CLAIM_TURNS = 1000  # that a thread gets for its first step
_AFTER_ERROR_SECONDS = 1e-3  # so that an error that comes again takes no processor
_LEAST_SLEEP = 20e-6  # seconds; a look takes a core from work on the same cores
_yield_processor: Callable[[], object] = getattr(os, "sched_yield", partial(time.sleep, 0))


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
        """Start it. Raises: InvalidState when there can be no new thread."""
        try:
            super().start()
        except unless_of_a_signal(KeyError, RecursionError):  # if Ctrl-C made it, raises that
            raise
        except unless_of_a_signal(RuntimeError) as error:
            is_ending = not threading.main_thread().is_alive()
            ending = (
                "Python is ending: join this thread in the main thread, or work before its end."
            )
            fix = ending if is_ending else "End some threads, or raise the system's limit."
            raise InvalidState(f"start thread {self.name!r}", str(error), fix=fix) from error


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


def start_thread(name: str, target: Callable[..., object], *args: Any) -> threading.Thread:
    """Start a daemon thread. Raises: InvalidState when there can be no new one."""
    thread = Thread(name, target, *args)
    thread.start()
    return thread


def start_server(
    servers: Servers, name: str, serve: Callable[[], object],
    is_needed: Callable[[], object] | None = None, *, number: int = 0,
    start: Callable[..., threading.Thread] = start_thread,
) -> None:  # fmt: skip
    """Start a thread that serves as one of some numbers, unless another one does.

    Raises: InvalidState when there can be no new thread.
    """
    thread = start(name, serve_alone, servers, number, serve, is_needed)
    if is_needed is None:  # it serves for good, so this claim cannot be of a thread that has ended
        servers.setdefault(number, thread)
        return
    for _ in range(_CLAIM_TURNS):  # or the next call would start one, too
        if number in servers or not thread.is_alive():
            return
        time.sleep(0)


def serve_alone(
    servers: Servers, number: int, serve: Callable[[], object],
    is_needed: Callable[[], object] | None = None,
) -> None:  # fmt: skip
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

"""Work that Ctrl-C may end anywhere, and neither breaks nor repeats."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

E = TypeVar("E", bound=BaseException)
_TAKES_MORE = 0x04  # inspect.CO_VARARGS: *args


def run_unless_busy(lock: threading.RLock, work: Callable[[], object]) -> bool:
    """Call `work` with the lock held, unless another thread or a caller of this one holds it.

    Returns: whether it was called.
    """
    if lock._is_owned():  # type: ignore[attr-defined]
        return False
    try:
        if not lock.acquire(blocking=False):  # inside, as Ctrl-C may come behind it
            return False
        work()
    except BaseException:
        if lock._is_owned():  # type: ignore[attr-defined]
            lock.release()
        raise
    lock.release()
    return True


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
            if may_be_ctrl_c(error):
                calls.appendleft(call)
                raise
            log_failure("an event's callback failed", error)


def log_failure(what: str, error: BaseException) -> None:
    """Log an error of other code for which there is no caller."""
    try:
        from logging import getLogger

        getLogger("hal_core").warning("%s: %s", what, f"{type(error).__name__}: {error}")
    except BaseException as raised:  # of the error's own text, or of the program's handlers
        if may_be_ctrl_c(raised):
            raise


def may_be_ctrl_c(error: BaseException) -> bool:
    """Tell whether a signal may have raised the error: only the main thread hears signals."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and (not isinstance(error, Exception) or is_of_a_signal(error))


def is_of_a_signal(error: BaseException) -> bool:
    """Tell whether the handler of a signal raised the error, in the middle of other code.

    SIGTERM often becomes a SystemExit that way, which is the end of the program. A backend whose
    library hears signals in machine code marks the error with `of_a_signal`.
    """
    place = error.__traceback__ and error.__traceback__.tb_next
    while place is not None:
        # A handler is called with the frame that it interrupts. That need not be in the traceback,
        # from which Python takes those of imports. The handler's arguments alone are read: other
        # variables may hold the error, which Python 3.12 would keep in a cycle.
        frame, code, caller = place.tb_frame, place.tb_frame.f_code, place.tb_frame.f_back
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _TAKES_MORE)
        for name in code.co_varnames[:count] if caller else ():
            given = frame.f_locals.get(name)
            if any(one is caller for one in (given if isinstance(given, tuple) else [given])):
                return True
        place = place.tb_next
    return hasattr(error, "of_a_signal")


def raise_if_of_a_signal(error: BaseException) -> None:
    """Raise what Ctrl-C or the handler of a signal raised, if `error` is that or has replaced it.

    Code that catches every OSError replaces a TimeoutError, for example. What the program itself is
    handling meanwhile does not count: it was caught further out, in a frame that called ours.
    """
    trace, callers = error.__traceback__, list[FrameType]()
    frame = trace and trace.tb_frame.f_back  # of the frame that has caught it
    while frame is not None:
        callers += [frame]
        frame = frame.f_back
    one: BaseException | None = error
    while one is not None and one.__traceback__ and one.__traceback__.tb_frame not in callers:
        if isinstance(one, KeyboardInterrupt) or is_of_a_signal(one):
            context = one.__context__
            try:
                raise one
            finally:
                one.__context__ = context
        one = one.__context__


def unless_of_a_signal(*kinds: type[E]) -> tuple[type[E], ...]:
    """Return the classes for an `except`; none where the handler of a signal raised the error.

    Raises: what Ctrl-C or a handler raised, if an error of these classes has replaced it.
    """
    error = sys.exception()
    if isinstance(error, kinds):
        if is_of_a_signal(error):
            return ()
        raise_if_of_a_signal(error)
    return kinds


class suppress:  # spelled as contextlib's
    """Suppress errors in a block, as contextlib's, unless the handler of a signal raised them."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return error is not None and isinstance(error, unless_of_a_signal(*self._kinds))

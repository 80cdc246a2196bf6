"""Stacks that are large enough for kernels.

A kernel's shared arrays, and the values that live across its barriers, take up to 320 KiB. The main
thread has megabytes, and so have others on most systems; `threading.stack_size` and `ulimit -s` can
set less.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from hal_core.concurrency import fork_safe_lock
from hal_cpu import driver

T = TypeVar("T")

STACK_NBYTES = 1 << 20  # enough for a kernel and its callers

_own = threading.local()  # `nbytes`; asking for the main thread's takes a third of a millisecond


def stack_nbytes() -> int:
    """Return the size of the calling thread's stack, asked for once per thread."""
    try:
        return _own.nbytes  # type: ignore[no-any-return]
    except AttributeError:
        _own.nbytes = driver.stack_nbytes()
        return _own.nbytes  # type: ignore[no-any-return]


def call_on_stack(nbytes: int, function: Callable[[], T]) -> T:
    """Return `function()`, called on a stack of at least `nbytes`."""
    if stack_nbytes() >= nbytes:
        return function()
    done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def call() -> None:
        try:
            done.put((function(), None))
        except BaseException as error:
            done.put((None, error))

    start_thread("hal-cpu-stack", call, nbytes=nbytes)
    result, error = done.get()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def start_thread(
    name: str, target: Callable[..., None], *args: Any, nbytes: int = STACK_NBYTES
) -> threading.Thread:
    """Start a daemon thread whose stack has at least `nbytes`.

    Raises: RuntimeError when the system grants no more threads.
    """
    worker = threading.Thread(target=target, args=args, name=name, daemon=True)
    with _stack_lock:
        usual = _usual_nbytes()
        try:
            # The size is the process's: threads that others start now may get more, never less.
            threading.stack_size(nbytes if _is_small(usual, nbytes) else usual)
            worker.start()
        finally:
            threading.stack_size(usual)
    return worker


def needs_larger_stack() -> bool:
    """Return whether the stack of the calling thread, or of one started later, is too small."""
    with _stack_lock:
        usual = _usual_nbytes()
    return _is_small(usual, STACK_NBYTES) or stack_nbytes() < STACK_NBYTES


_stack_lock = fork_safe_lock()  # held while `threading.stack_size` is not what the user set


def _usual_nbytes() -> int:
    """Return what the user set with `threading.stack_size`. The caller holds the lock."""
    usual = threading.stack_size(0)  # the only way to ask is to set it
    threading.stack_size(usual)
    return usual


def _is_small(usual: int, nbytes: int) -> bool:
    if usual:
        return usual < nbytes
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)  # 0 means the system's own size
    return limit != resource.RLIM_INFINITY and limit < nbytes

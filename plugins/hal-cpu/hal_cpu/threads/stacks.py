"""Stacks that are large enough for kernels.

A kernel's shared arrays and what lives across its barriers take up to 320 KiB. The first thread and
those of most systems have megabytes; `threading.stack_size` and `ulimit -s` can say less.
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

STACK_NBYTES = 1 << 20  # enough, with all that is called on the way

_own = threading.local()  # `nbytes`: the first thread's takes a third of a millisecond to ask for


def stack_nbytes() -> int:
    """Return the size of the calling thread's stack, which is asked for once."""
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
            # One size for all threads that start now: others may get more, never less.
            threading.stack_size(nbytes if _is_small(usual, nbytes) else usual)
            worker.start()
        finally:
            threading.stack_size(usual)
    return worker


def needs_larger_stack() -> bool:
    """Return whether the calling thread's stack, or one of a thread that starts later, is small."""
    with _stack_lock:
        usual = _usual_nbytes()
    return _is_small(usual, STACK_NBYTES) or stack_nbytes() < STACK_NBYTES


_stack_lock = fork_safe_lock()  # held while `threading.stack_size` is not what the user set


def _usual_nbytes() -> int:
    """Return what the user set with `threading.stack_size`. The lock is held."""
    usual = threading.stack_size(0)  # to ask is to set
    threading.stack_size(usual)
    return usual


def _is_small(usual: int, nbytes: int) -> bool:
    if usual:
        return usual < nbytes
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)  # 0 means the system's own size
    return limit != resource.RLIM_INFINITY and limit < nbytes

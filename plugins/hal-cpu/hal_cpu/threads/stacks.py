"""Stacks on which kernels run.

A kernel's shared arrays and what lives across its barriers take up to 320 KiB. The first thread and
those of most systems have megabytes; `threading.stack_size` and `ulimit -s` can say less.
"""

from __future__ import annotations

import ctypes
import resource
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from hal_core.concurrency import fork_safe_lock, renew_after_fork

T = TypeVar("T")

STACK_NBYTES = 1 << 20  # enough, with all that is called on the way

_libc = ctypes.CDLL(None)
_libc.pthread_self.restype = ctypes.c_void_p
_of_thread = threading.local()  # the first thread's takes a third of a millisecond to ask for


def stack_nbytes() -> int:
    """Bytes of the calling thread's stack; of the first thread's, what it may grow to.

    Source: pthread_getattr_np(3); glibc and musl.
    """
    known: int | None = getattr(_of_thread, "nbytes", None)
    if known is not None:
        return known
    attributes = ctypes.create_string_buffer(128)  # pthread_attr_t is 56 or 64 bytes
    nbytes = ctypes.c_size_t()
    if _libc.pthread_getattr_np(ctypes.c_void_p(_libc.pthread_self()), attributes):
        return 0
    _libc.pthread_attr_getstacksize(attributes, ctypes.byref(nbytes))
    _libc.pthread_attr_destroy(attributes)
    _of_thread.nbytes = nbytes.value
    return nbytes.value


def with_room(nbytes: int, function: Callable[[], T]) -> T:
    """What `function` gives, called on a stack of at least `nbytes`."""
    if stack_nbytes() >= nbytes:
        return function()
    done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def call() -> None:
        try:
            done.put((function(), None))
        except BaseException as error:
            done.put((None, error))

    start_thread("hal-cpu-roomy", call, nbytes=nbytes)
    result, error = done.get()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def start_thread(
    name: str, target: Callable[..., None], *args: Any, nbytes: int = STACK_NBYTES
) -> threading.Thread:
    """A running daemon thread whose stack has at least `nbytes`: room for a kernel.

    Raises: RuntimeError when the system grants no more threads.
    """
    worker = threading.Thread(target=target, args=args, name=name, daemon=True)
    global _chosen
    with _stack_lock:  # one size for all threads that start: others get more meanwhile, not less
        before, usual = _chosen, _ask()
        try:
            _chosen = usual
            threading.stack_size(nbytes if _is_small(usual, nbytes) else usual)
            worker.start()
        finally:
            threading.stack_size(usual)
            _chosen = before
    return worker


_stack_lock = fork_safe_lock()
_chosen: int | None = None  # what `threading.stack_size` was set to, while it is changed here


def _ask() -> int:
    """The lock is held."""
    if _chosen is not None:
        return _chosen
    chosen = threading.stack_size(0)  # to ask is to set
    threading.stack_size(chosen)
    return chosen


def _is_small(chosen: int, nbytes: int = STACK_NBYTES) -> bool:
    """Whether a stack of the size chosen is smaller than that; 0 is the system's own size."""
    if chosen:
        return chosen < nbytes
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return limit != resource.RLIM_INFINITY and limit < nbytes


def needs_room() -> bool:
    """Whether a kernel may not run on the calling thread's stack, or on one that starts later."""
    with _stack_lock:
        chosen = _ask()
    return _is_small(chosen) or stack_nbytes() < STACK_NBYTES


@renew_after_fork
def _restore_stack_size() -> None:
    """Undo what another thread of the parent had set for the thread that it was starting."""
    global _chosen
    if _chosen is not None:
        threading.stack_size(_chosen)
    _chosen = None

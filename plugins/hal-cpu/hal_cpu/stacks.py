"""Stacks on which kernels run.

A kernel's shared arrays and what lives across its barriers take up to 320 KiB. The first thread and
those of most systems have megabytes; `threading.stack_size` and `ulimit -s` can say less.
"""

from __future__ import annotations

import ctypes
import os
import resource
import threading
from collections.abc import Callable
from typing import Any

STACK_NBYTES = 1 << 20  # enough, with all that is called on the way

_libc = ctypes.CDLL(None)
_libc.pthread_self.restype = ctypes.c_void_p


def stack_nbytes() -> int:
    """Bytes of the calling thread's stack; of the first thread's, what it may grow to.

    Source: pthread_getattr_np(3); glibc and musl.
    """
    attributes = ctypes.create_string_buffer(128)  # pthread_attr_t is 56 or 64 bytes
    nbytes = ctypes.c_size_t()
    if _libc.pthread_getattr_np(ctypes.c_void_p(_libc.pthread_self()), attributes):
        return 0
    _libc.pthread_attr_getstacksize(attributes, ctypes.byref(nbytes))
    _libc.pthread_attr_destroy(attributes)
    return nbytes.value


def start_thread(name: str, target: Callable[..., None], *args: Any) -> threading.Thread:
    """A running daemon thread whose stack has room for a kernel.

    Raises: RuntimeError when the system grants no more threads.
    """
    worker = threading.Thread(target=target, args=args, name=name, daemon=True)
    with _stack_lock:  # one size for all threads that start: others get more meanwhile, not less
        usual = threading.stack_size(0)
        try:
            threading.stack_size(STACK_NBYTES if _is_small(usual) else usual)
            worker.start()
        finally:
            threading.stack_size(usual)
    return worker


_stack_lock = threading.Lock()


def _is_small(chosen: int) -> bool:
    """Whether a stack of that size is too small for a kernel; 0 is the system's own size."""
    if chosen:
        return chosen < STACK_NBYTES
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return limit != resource.RLIM_INFINITY and limit < STACK_NBYTES


def needs_room() -> bool:
    """Whether a kernel may not run on the calling thread's stack, or on one that starts later."""
    with _stack_lock:
        chosen = threading.stack_size(0)  # to ask is to set
        threading.stack_size(chosen)
    return _is_small(chosen) or stack_nbytes() < STACK_NBYTES


def _after_fork_in_child() -> None:
    """Another thread may have held it."""
    global _stack_lock
    _stack_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)

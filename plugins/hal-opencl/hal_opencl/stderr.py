"""The stderr of a build: what the platform's compiler writes to it, without counts of warnings."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from hal_core.concurrency import Thread, suppress
from hal_core.errors import InvalidState

T = TypeVar("T")

# clang inside PoCL and Oclgrind writes this line to file descriptor 2, whatever its options.
_CHATTER = re.compile(rb"(?m)^\d+ (?:warning|error)s?(?: and \d+ errors?)? generated\.\n")
_UNSHARE = 2  # CLOSE_RANGE_UNSHARE of <linux/close_range.h>


def quietly(work: Callable[[], T]) -> T:
    """Return what `work` returns; of what it writes to stderr, the counts of warnings are dropped.

    It runs in a thread that has file descriptors of its own: all other threads, and children that
    they start meanwhile, keep theirs. Where there can be no such thread, nothing is dropped.
    """
    done: list[T] = []
    failed: list[BaseException] = []
    written = b""

    def run() -> None:
        nonlocal written
        try:
            read = _own_stderr()
            try:
                done.append(work())
            finally:
                written = read()
        except BaseException as error:
            failed.append(error)
        finally:
            end.release()

    end = Lock()
    end.acquire()
    # No daemon, as the driver's own end waits for the build. No join: Python 3.11 and 3.12 take the
    # thread for one that has ended if Ctrl-C ends its join, and do not wait for it at their exit.
    try:
        Thread("hal-opencl build", run, daemon=False).start()
    except InvalidState:  # there can be none, as when Python ends
        return work()
    end.acquire()
    rest = _CHATTER.sub(b"", written)
    if rest:
        with suppress(OSError):  # no stderr
            os.write(2, rest)
    if failed:
        raise failed.pop()
    return done.pop()


def _own_stderr() -> Callable[[], bytes]:
    """Give the calling thread, for good, a stderr in memory; return the function that reads it."""
    if sys.platform == "linux":
        close_range = getattr(ctypes.CDLL(None), "close_range", None)  # glibc 2.34, Linux 5.9
        # The thread closes its copies of other files: a pipe ends when the other threads close it.
        if close_range is not None and close_range(3, ctypes.c_uint(-1), _UNSHARE) == 0:
            memory = os.memfd_create("stderr")
            os.dup2(memory, 2)
            return lambda: os.pread(memory, os.fstat(memory).st_size, 0)
    return lambda: b""

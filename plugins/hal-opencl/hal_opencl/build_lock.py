"""The lock around builds: threads take turns and, on PoCL, processes that build one kernel.

PoCL keeps programs in a folder that processes share. Before version 6.0 it deletes and rewrites a
file there that another process may be about to read, and copies folders to which another process
may add (pocl/pocl#1480). With an empty folder builds fail without a log, and processes end by
SIGABRT or SIGSEGV.
"""

from __future__ import annotations

import os
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import platformdirs

from hal_core.concurrency import suppress, unless_of_a_signal
from hal_opencl.driver import cl, is_pocl

_threads = threading.RLock()  # not every platform builds in two threads at once
_depth = 0  # of the thread that holds it


@contextmanager
def build_lock(device: cl.Device, entry: str) -> Iterator[None]:
    """Hold the lock of this process and, on PoCL, the one of all processes for this entry.

    Concurrency: a thread that holds it may take it again for the same entry.
    """
    global _depth
    with _threads, _locked_byte(entry) if not _depth and is_pocl(device) else nullcontext():
        depth = _depth
        try:
            _depth = depth + 1
            yield
        finally:
            _depth = depth


@contextmanager
def _locked_byte(entry: str) -> Iterator[None]:
    """Lock the byte of an entry, in a file beside PoCL's programs; the system frees it at exit.

    Locks nothing where the folder cannot be written or the system does not lock files.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    try:
        folder = os.environ.get("POCL_CACHE_DIR") or platformdirs.user_cache_dir("pocl")
        os.makedirs(folder, exist_ok=True)
        file = open(os.path.join(folder, "hal-core.lock"), "ab")  # noqa: SIM115
    except unless_of_a_signal(OSError, RuntimeError):  # RuntimeError: there is no home
        yield
        return
    with file:  # closing it frees the byte; a forked child has no part in the lock
        with suppress(OSError):
            fcntl.lockf(file, fcntl.LOCK_EX, 1, zlib.crc32(entry.encode()))
        yield

"""Repair what a forked child needs, and refuse what it may not touch.

This module alone calls `os.register_at_fork`. The reasons, and the order of the steps:
docs/design/fork.md.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any, NoReturn, Self, SupportsIndex

from hal_core.concurrency.imports import is_importing
from hal_core.concurrency.living import Living
from hal_core.errors import ForkError, Unsupported

# Every hal.Compiled made in this process. Its type is not named: it would be a circle of imports.
devices: Living[Any] = Living()
forkable: Living[Any] = Living()  # backends, thread pools, ...: objects with an `_after_fork()`
_locks: Living[threading.RLock] = Living()
_held_locks: list[threading.RLock] = []
_FORK_WAITS_SECONDS = 5.0  # for imports of other threads, which may never end
never_released: list[object] = []  # parts of abandoned drivers; empty but in a forked child


def fork_safe_lock() -> threading.RLock:
    """Return a re-entrant lock that is free in a forked child, whichever thread held it.

    The lock of a thread that the child does not have would never be released.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def hold_during_fork(lock: threading.RLock) -> None:
    """Make every fork wait for `lock`, which guards state that a child could not repair."""
    _held_locks.append(lock)


def _before_fork() -> None:
    # `never_release` needs ctypes in the child, where an import lock may be held for ever.
    if not all(survives_fork(device.info.capabilities) for device in devices):
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
            begins = place.f_code.co_name == "_find_and_load"  # of IMPORT_SYSTEM
            if begins and str(place.f_locals.get("name")).startswith("hal_"):
                return True
            place = place.f_back
    return False


def _after_fork_in_parent() -> None:
    for lock in reversed(_held_locks):
        lock.release()


def _after_fork_in_child() -> None:
    """Repair the child: locks first, as all else takes them; then devices; then all else."""
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


class OfThisProcess:
    """Base of objects that no other process can have. A copy is the object itself."""

    _instead: str  # what to send, and what to do with it there

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> str:
        raise Unsupported("pickle", f"{self!r} is of this process alone", fix=self._instead)


# -- drivers that a child may not use


def survives_fork(capabilities: frozenset[str]) -> bool:
    return "subprocess_fork" in capabilities


def fork_error(operation: str, device: str) -> ForkError:
    problem = "the parent process used this driver, which does not survive a fork"
    fix = 'Start the process with multiprocessing.get_context("spawn"), or fork before '
    return ForkError(operation, problem, device=device, fix=f"{fix}the first use.")


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
        from ctypes import py_object, pythonapi

        pythonapi.Py_IncRef(py_object(never_released))
    never_released.extend(things)

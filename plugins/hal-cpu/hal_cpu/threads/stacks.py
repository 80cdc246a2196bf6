"""Stacks that are large enough for kernels.

A kernel's shared arrays, those of its threads, and the values that live across its barriers take up
to 576 KiB. The main thread has megabytes, and so have others on most systems;
`threading.stack_size` and `ulimit -s` can set less.
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from hal_core.concurrency import Thread, fork_safe_lock
from hal_cpu import driver, processor

T = TypeVar("T")

STACK_NBYTES = 1 << 20  # enough for a kernel and its callers


class _ThisThread(threading.local):
    """Facts of the calling thread, asked for once; the main thread's take 0.3 ms."""

    nbytes = -1  # of its stack; -1: not asked for
    has_room = False  # for any kernel; False: it has not, or was not asked for


this_thread = _ThisThread()


def stack_nbytes() -> int:
    """Return the size of the calling thread's stack."""
    if this_thread.nbytes < 0:
        this_thread.nbytes = driver.stack_nbytes()
        this_thread.has_room = this_thread.nbytes >= STACK_NBYTES
    return this_thread.nbytes


def for_this_thread(run: T, moved: T) -> T:
    """Return `run` if the calling thread has room for any kernel, else `moved`."""
    return run if stack_nbytes() >= STACK_NBYTES else moved


# sub rsp, number; lea rsp, [rsp + number]; mov eax, number, before a call and sub rsp, rax, as in
# code for Windows. Source: Intel SDM, volume 2.
_TAKES_STACK = re.compile(
    rb"(?:\x48\x81\xec|\x48\x8d\xa4\x24|\xb8(?=.{9,12}\x48\x29\xc4))(.{4})", re.DOTALL
)


def has_large_frame(image: bytes) -> bool:
    """Return whether machine code takes 4 KiB of stack or more at once.

    All bytes are searched. Data that looks like such code makes a launch 5 % slower, no more.
    """
    if processor.machine() == "aarch64":
        words = struct.iter_unpack("<I", image[: len(image) // 4 * 4])
        # sub sp, sp, #number, lsl #12; sub sp, sp, register. Source: Arm ARM (DDI 0487), C6.2.
        return any(
            word & 0xFFC003FF == 0xD14003FF or word & 0xFFE0FFFF == 0xCB2063FF for (word,) in words
        )
    found = (struct.unpack("<i", match[1]) for match in _TAKES_STACK.finditer(image))
    return any(abs(number) >= 4096 for (number,) in found)


def start_thread(
    name: str, target: Callable[..., None], *args: Any, nbytes: int = STACK_NBYTES
) -> threading.Thread:
    """Start a daemon thread whose stack has at least `nbytes`.

    Raises: InvalidState when there can be no new thread.
    """
    worker = Thread(name, target, *args)
    with _stack_lock:
        usual = _usual_nbytes()
        try:
            # The size is the process's: threads that others start now may get more, never less.
            threading.stack_size(nbytes if _is_small(usual, nbytes) else usual)
            worker.start()
        finally:
            threading.stack_size(usual)
    return worker


_stack_lock = fork_safe_lock()  # held while `threading.stack_size` is not what the user set


def _usual_nbytes() -> int:
    """Return what the user set with `threading.stack_size`. The caller holds the lock."""
    # The only way to ask is to set it. In one step: behind a call of it Ctrl-C may come.
    (usual,) = map(threading.stack_size, [0])
    threading.stack_size(usual)
    return usual


def _is_small(usual: int, nbytes: int) -> bool:
    if usual:
        return usual < nbytes
    own = driver.usual_stack_nbytes()  # 0 means the system's own size
    return own is not None and own < nbytes

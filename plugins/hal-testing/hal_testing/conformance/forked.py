"""Run a check in a forked child and return its findings as texts."""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable

from hal_testing.kit.abilities import nothing_to_try

SECONDS = 60.0


def findings_of_child(work: Callable[[], list[str]]) -> list[str]:
    """Run `work` in a forked child and return the faults it found.

    A fault is a text that `work` returned, an exception, or a child that hangs.
    """
    if not hasattr(os, "fork"):
        nothing_to_try("this system has no fork")
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python warns of a fork while threads run, which is the case under test.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _report(work, writer)
    os.close(writer)
    try:
        return _read(reader)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)  # it has ended already, unless it hangs
        os.waitpid(child, 0)


def _report(work: Callable[[], list[str]], writer: int) -> None:
    """Run `work` in the child, and end it without the parent's exit handlers and finalizers."""
    try:
        found = work()
    except BaseException:
        found = [traceback.format_exc()]
    finally:
        # A pipe holds 64 KiB, and `_read` may have given up by now.
        os.write(writer, ("\n".join(found)[:60_000] + "\0").encode())
        os._exit(0)


def _read(reader: int) -> list[str]:
    deadline, text = time.monotonic() + SECONDS, b""
    while not text.endswith(b"\0"):
        if not select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            # Not raised: the caller still has to kill the child.
            return [f"the child hangs, for {SECONDS:.0f} seconds"]
        more = os.read(reader, 1 << 16)
        if not more:
            return ["the child ended without a word: it crashed"]
        text += more
    return text[:-1].decode().splitlines()

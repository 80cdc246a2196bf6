"""One launch as chunks that several threads run, and a call in a thread of its own."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from ctypes import c_int64
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from hal_core.concurrency import unless_of_a_signal
from hal_cpu.threads.stacks import STACK_NBYTES, stack_nbytes, start_thread

T = TypeVar("T")

LaunchFunction = Callable[[bytes, Any, c_int64, c_int64], None]  # (args, launch, first, last)
Chunks = list[tuple[c_int64, c_int64]]


class Job:
    """One launch, cut into chunks that any free thread claims.

    A chunk is taken out of the claims in one step, so that it is claimed once.
    """

    __slots__ = ("args", "claims", "done", "error", "finished", "helpers", "launch", "run", "total")

    def __init__(self, run: LaunchFunction, args: bytes, launch: Any, chunks: Chunks):
        self.run, self.args, self.launch = run, args, launch
        self.claims, self.total = deque(chunks), len(chunks)
        self.finished: list[None] = []
        self.helpers: list[None] = []  # workers that may run a chunk now
        self.done: SimpleQueue[None] = SimpleQueue()
        self.error: BaseException | None = None

    def work(self) -> None:
        """Run chunks until all are claimed."""
        run, args, launch, finished = self.run, self.args, self.launch, self.finished
        while True:
            try:
                first, last = self.claims.popleft()
            except IndexError:
                return
            run(args, launch, first, last)
            finished.append(None)
            if len(finished) == self.total:
                self.done.put(None)  # two threads may both see the end, which is harmless

    def help(self) -> None:
        """Run chunks in a worker. An exception there is left for the calling thread to raise."""
        self.helpers.append(None)  # before the first claim: `abandon` counts on it
        try:
            self.work()
        except BaseException as error:
            self.error = error
            self.done.put(None)
        finally:
            self.helpers.pop()

    def wait(self) -> None:
        """Wait until every chunk has run. Raises: what `run` raised in a worker."""
        self.done.get()
        if self.error is not None:
            raise self.error

    def abandon(self) -> None:
        """Drop the chunks that no thread has claimed, then wait for those that workers run.

        The kernel writes the caller's memory, which may be freed once control is back. So further
        interrupts (Ctrl-C) change nothing; the first is the one that the caller raises.
        """
        waiting = True
        while waiting:
            try:
                self.claims.clear()
                while True:
                    if not self.helpers:
                        break
                    time.sleep(0.0002)
                waiting = False
            except BaseException:  # a further interrupt
                continue


def call_in_thread(function: Callable[[], T], nbytes: int = STACK_NBYTES) -> T:
    """Return `function()`, called in a thread of its own: one that Ctrl-C does not reach, and whose
    stack has at least `nbytes`.

    Order: the call has ended when this raises Ctrl-C. Where the system grants no more threads, as
    at the end of Python, the calling thread does it, if its stack is large enough.
    """
    results: list[T] = []
    job = Job(lambda *_: results.append(function()), b"", None, [(c_int64(0), c_int64(1))])
    try:
        try:
            start_thread("hal-cpu-call", job.help, nbytes=nbytes)
        except unless_of_a_signal(RuntimeError):
            if stack_nbytes() < nbytes:
                raise
            job.work()
        job.wait()
    except BaseException:
        job.abandon()
        raise
    return results[0]


class LargeStackLaunch:
    """A launch function for threads whose stacks are too small."""

    def __init__(self, run: LaunchFunction) -> None:
        self._run = run

    def __call__(self, *launch: Any) -> None:
        call_in_thread(partial(self._run, *launch))

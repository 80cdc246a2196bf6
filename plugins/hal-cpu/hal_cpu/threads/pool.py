"""Worker threads that share the blocks of one large launch with the thread that called."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from ctypes import c_int64
from queue import SimpleQueue
from typing import Any

from hal_core.concurrency import fork_safe_lock, forkable
from hal_cpu.threads.stacks import start_thread

Run = Callable[[bytes, Any, c_int64, c_int64], None]  # (args, launch, first, last)
Chunks = list[tuple[c_int64, c_int64]]

CHUNKS_PER_THREAD = 4  # so that threads that start late or are slowed down do less
_JOIN_SECONDS = 1.0


class Job:
    """One launch, cut into chunks that whoever is free claims.

    `next` on the claims is one step under the GIL, so every chunk is claimed once.
    """

    __slots__ = ("args", "claims", "done", "error", "finished", "helpers", "launch", "run", "total")

    def __init__(self, run: Run, args: bytes, launch: Any, chunks: Chunks):
        self.run, self.args, self.launch = run, args, launch
        self.claims, self.total = iter(chunks), len(chunks)
        self.finished: list[None] = []
        self.helpers: list[None] = []  # workers that may run a chunk now
        self.done: SimpleQueue[None] = SimpleQueue()
        self.error: BaseException | None = None

    def work(self) -> None:
        run, args, launch, finished = self.run, self.args, self.launch, self.finished
        for first, last in self.claims:
            run(args, launch, first, last)
            finished.append(None)
            if len(finished) == self.total:
                self.done.put(None)  # perhaps by two at once, which is harmless

    def help(self) -> None:
        """`work` in a worker: what goes wrong there is told to the caller."""
        self.helpers.append(None)  # before the first claim: `abandon` counts on it
        try:
            self.work()
        except BaseException as error:
            self.error = error
            self.done.put(None)
        finally:
            self.helpers.pop()

    def abandon(self) -> None:
        """After an interrupt: claim what is left, then wait for what the workers run.

        The kernel writes the caller's memory, which may go once control is back. So further
        interrupts change nothing; the first is the one that the caller raises.
        """
        waiting = True
        while waiting:
            try:
                deque(self.claims, maxlen=0)  # all of them in one step
                while self.helpers:
                    time.sleep(0.0002)
                waiting = False
            except BaseException:  # says what the first one said
                continue


class Pool:
    """Persistent daemon threads, started at the first large launch.

    Order: `run` returns when every block has run. Several threads may call it at once: each works
    on its own job, and workers take the jobs in turn.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads  # that work on a launch, the caller included
        self._lock = fork_safe_lock()
        self._forget()
        forkable.add(self)

    def _after_fork(self) -> None:
        """Forget the threads, which a child does not have, and their queue, which may be locked."""
        self._forget()

    def _forget(self) -> None:
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []

    def run(self, run: Run, args: bytes, launch: Any, chunks: Chunks) -> None:
        """Call `run(args, launch, first, last)` for every chunk.

        `run` must release the GIL, or nothing is gained.
        """
        if not self._workers:
            self._start()
        job = Job(run, args, launch, chunks)
        try:
            put = self._queue.put
            for _ in range(min(len(self._workers), len(chunks) - 1)):
                put(job)
            job.work()
            job.done.get()
        except BaseException:
            job.abandon()
            raise
        if job.error is not None:
            job.abandon()
            raise job.error

    def _start(self) -> None:
        """As many as the system grants: the caller alone does, at the worst."""
        with self._lock:
            queue, workers = self._queue, self._workers
            if workers:
                return
            while len(workers) < self.threads - 1:
                name = f"hal-cpu-{len(workers) + 1}"
                try:
                    workers.append(start_thread(name, _serve, queue))
                except RuntimeError:  # can't start new thread
                    return

    def close(self) -> None:
        """Stop the workers; a launch that runs now is finished by its caller."""
        with self._lock:
            queue, workers = self._queue, self._workers
            self._forget()
        for _ in workers:
            queue.put(None)
        for worker in workers:
            worker.join(_JOIN_SECONDS)


class Roomy:
    """Runs each launch in a thread of its own, for callers whose stacks may be too small."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __call__(self, args: bytes, launch: Any, first: c_int64, last: c_int64) -> None:
        job = Job(self._run, args, launch, [(first, last)])
        start_thread("hal-cpu-roomy", job.help)
        try:
            job.done.get()
        except BaseException:
            job.abandon()
            raise
        if job.error is not None:
            raise job.error


def split(blocks: int, threads: int) -> Chunks:
    """Near-equal ranges that cover `blocks`, ready to be passed."""
    count = min(blocks, threads * CHUNKS_PER_THREAD)
    bounds = [c_int64(blocks * number // count) for number in range(count + 1)]
    return list(itertools.pairwise(bounds))


def _serve(queue: SimpleQueue[Job | None]) -> None:
    while (job := queue.get()) is not None:
        job.help()
        del job  # or an idle worker would keep the last launch's code alive

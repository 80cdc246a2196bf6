"""Worker threads that share the blocks of one large launch with the thread that called."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from ctypes import c_int64
from queue import SimpleQueue
from typing import Any
from weakref import WeakSet

Run = Callable[[bytes, Any, c_int64, c_int64], None]  # (args, launch, first, last)
Chunks = list[tuple[c_int64, c_int64]]

CHUNKS_PER_THREAD = 4  # so that threads that start late or are slowed down do less
_JOIN_SECONDS = 1.0


class Job:
    """One launch, cut into chunks that whoever is free claims.

    `next` on the claims is one step under the GIL, so every chunk is claimed once.
    """

    __slots__ = ("args", "chunks", "claims", "done", "error", "finished", "launch", "run")

    def __init__(self, run: Run, args: bytes, launch: Any, chunks: Chunks):
        self.run, self.args, self.launch, self.chunks = run, args, launch, chunks
        self.claims = iter(chunks)
        self.finished: list[None] = []
        self.done: SimpleQueue[None] = SimpleQueue()
        self.error: BaseException | None = None

    def work(self) -> None:
        run, args, launch = self.run, self.args, self.launch
        finished, total = self.finished, len(self.chunks)
        for first, last in self.claims:
            try:
                run(args, launch, first, last)
            except BaseException as error:  # told to the caller, whoever met it
                self.error = error
            finally:
                finished.append(None)
                if len(finished) == total:
                    self.done.put(None)  # perhaps by two at once, which is harmless

    def abandon(self) -> None:
        """After an interrupt: claim what is left, then wait for what runs.

        The kernel writes the caller's memory, so it must have stopped before control goes back.
        """
        for _ in self.claims:
            self.finished.append(None)
        while len(self.finished) < len(self.chunks):
            time.sleep(0.0002)


class Pool:
    """Persistent daemon threads, started at the first large launch.

    Order: `run` returns when every block has run. Several threads may call it at once: each works
    on its own job, and workers take the jobs in turn.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads  # that work on a launch, the caller included
        self._lock = threading.Lock()
        self._forget()
        _pools.add(self)

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
        put = self._queue.put
        for _ in range(min(self.threads, len(chunks)) - 1):
            put(job)
        try:
            job.work()
            job.done.get()
        except BaseException:
            job.abandon()
            raise
        if job.error is not None:
            job.abandon()
            raise job.error

    def _start(self) -> None:
        with self._lock:
            if self._workers:
                return
            workers = [
                threading.Thread(
                    target=_serve, args=(self._queue,), name=f"hal-cpu-{number}", daemon=True
                )
                for number in range(1, self.threads)
            ]
            for worker in workers:
                worker.start()
            self._workers = workers

    def close(self) -> None:
        """Stop the workers; a launch that runs now is finished by its caller."""
        with self._lock:
            queue, workers = self._queue, self._workers
            self._forget()
        for _ in workers:
            queue.put(None)
        for worker in workers:
            worker.join(_JOIN_SECONDS)


def split(blocks: int, threads: int) -> Chunks:
    """Near-equal ranges that cover `blocks`, ready to be passed."""
    count = min(blocks, threads * CHUNKS_PER_THREAD)
    bounds = [c_int64(blocks * number // count) for number in range(count + 1)]
    return list(itertools.pairwise(bounds))


def _serve(queue: SimpleQueue[Job | None]) -> None:
    while (job := queue.get()) is not None:
        job.work()
        del job  # or an idle worker would keep the last launch's code alive


_pools: WeakSet[Pool] = WeakSet()


def _after_fork_in_child() -> None:
    """The threads did not come along, and their queue may be locked for ever."""
    for pool in list(_pools):
        pool._lock = threading.Lock()
        pool._forget()


os.register_at_fork(after_in_child=_after_fork_in_child)

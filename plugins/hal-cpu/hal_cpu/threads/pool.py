"""Worker threads that share the blocks of one large launch with the thread that called."""

from __future__ import annotations

import itertools
from contextlib import suppress
from ctypes import c_int64
from functools import partial
from queue import SimpleQueue
from typing import Any

from hal_core.concurrency import Servers, fork_safe_lock, forkable, start_server
from hal_core.errors import InvalidState
from hal_cpu.threads.job import Chunks, Job, LaunchFunction
from hal_cpu.threads.stacks import start_thread
from hal_cpu.threads.team import CHUNKS_PER_THREAD, Team, make_team

_JOIN_SECONDS = 1.0


class Pool:
    """Persistent daemon threads, started at the first large launch.

    Order: `run` returns when every block has run. Several threads may call it at once: each works
    on its own job, and workers take the jobs in turn.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads  # that work on a launch, the caller included
        self._lock = fork_safe_lock()
        self._forget_workers()
        forkable.add(self)

    def _after_fork(self) -> None:
        """Forget the workers, which a child does not have; their queue may be locked for ever."""
        self._forget_workers()

    def _forget_workers(self) -> None:
        self._queue: Tasks = SimpleQueue()
        self._idle: list[None] = []  # an entry for each worker that waits for the queue
        self._workers: Servers = {}
        self._team: Team | None = None
        self._is_complete = False  # True: all threads are started that can be

    def run(self, run: LaunchFunction, args: bytes, launch: Any, chunks: Chunks) -> None:
        """Call `run(args, launch, first, last)` for every chunk.

        `run` must release the GIL, or nothing is gained.
        """
        if not self._is_complete:
            self._start()
        code, team = getattr(run, "code", None), self._team
        if team is not None and code is not None:
            team.coming = True
            try:
                if self._idle:
                    self._wake()
                if team.lead(code.entry, args, launch, chunks[-1][1]):
                    return
            finally:
                team.coming = False
        job = Job(run, args, launch, chunks)
        try:
            put = self._queue.put
            for _ in range(min(len(self._workers), len(chunks) - 1)):
                put(job)
            job.work()
            job.wait()
        except BaseException:
            job.abandon()
            raise

    def _wake(self) -> None:
        """Make the workers that sleep look for a job of the team."""
        while self._idle:
            del self._idle[-1:]  # before the call, so that each worker is called once
            self._queue.put(_LOOK)

    def _start(self) -> None:
        with self._lock:
            if self._is_complete:  # another thread was faster
                return
            # Ctrl-C may have ended an earlier start in the middle, with some of the workers.
            self._team = team = self._team or make_team(self.threads)
            with suppress(InvalidState):  # no more threads: work with fewer, or none
                for me in range(1, self.threads):
                    serve = partial(_serve, self._queue, self._idle, team, me)
                    start_server(
                        self._workers, f"hal-cpu-{me}", serve, number=me, start=start_thread
                    )
            self._is_complete = True

    def close(self) -> None:
        """Stop the workers; a launch that runs now is finished by its caller."""
        with self._lock:
            queue, workers = self._queue, self._workers
            self._forget_workers()
        for _ in list(workers):
            queue.put(None)
        for worker in list(workers.values()):
            worker.join(_JOIN_SECONDS)


def split(blocks: int, threads: int) -> Chunks:
    """Cut `blocks` into near-equal ranges: 10 of 1 thread -> (0, 2), (2, 5), (5, 7), (7, 10)."""
    count = min(blocks, threads * CHUNKS_PER_THREAD)
    bounds = [c_int64(blocks * number // count) for number in range(count + 1)]
    return list(itertools.pairwise(bounds))


_LOOK = object()  # in a queue of tasks: look for a job of the team
Tasks = SimpleQueue[Any]  # a Job, _LOOK, or None as the last


def _serve(queue: Tasks, idle: list[None], team: Team | None, me: int) -> None:
    """Work on jobs, as thread `me` of the team, until there is a None in the queue."""
    while True:
        idle.append(None)
        task = queue.get()
        if task is not _LOOK:
            del idle[-1:]
        if task is None:
            return
        if task is not _LOOK:
            task.help()
        del task  # or an idle worker would keep the last launch's code alive
        if team is not None:
            while team.serve(me):
                pass

"""Launches on a busy machine: all cores beside one core, with a busy process for each core.

Each candidate is a process of its own, as the device reads its number of threads once. It launches
for a while whenever it is asked to, and the candidates take turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec

from bench import floors, programs
from bench.measure import OURS, Effort, Times
from bench.report import Missing, Row, beside

SIZES = ((768, 512), (4096, 2048))  # of the heat equation; 0.1 and 5 ms on one core
ONE = "one thread"
LOAD_SECONDS = 120  # after which a busy process ends by itself
_BUSY = "import sys, time; end = time.time() + float(sys.argv[1])\nwhile time.time() < end: pass"


def rows(effort: Effort) -> Iterator[Row | Missing]:
    cores = floors.cores()
    if cores < 2:
        yield Missing("launches on a busy machine", "this machine has one core")
        return
    for size in SIZES:
        what = f"heat equation, {size[0]} x {size[1]}, {cores} threads, {cores} busy processes"
        with ExitStack() as stack:
            ask = {
                ONE: stack.enter_context(candidate("CPU", size, HAL_CPU_THREADS="1")),
                OURS: stack.enter_context(candidate("CPU", size)),
            }
            if find_spec("numba"):
                ask["numba"] = stack.enter_context(candidate("numba", size))
            for one in ask.values():
                one(0.2)  # compile, and choose the form and the number of threads
            stack.enter_context(load(cores))
            times = in_turn(ask, effort)
        others = {"numba": times.typical("numba")} if "numba" in ask else {}
        yield beside(what, times, ONE, 1 / 1.15, peers=others)


def in_turn(ask: dict[str, Callable[[float], float]], effort: Effort) -> Times:
    """Let each candidate launch for many slices of the scheduler, which take some ms each."""
    rounds: dict[str, list[float]] = {name: [] for name in ask}
    for turn in range(2 * max(3, effort.rounds // 6)):
        for name in ask if turn % 2 else reversed(ask):
            rounds[name].append(ask[name](0.1))
    return Times(rounds)


@contextmanager
def candidate(
    kind: str, size: tuple[int, int], **environment: str
) -> Iterator[Callable[[float], float]]:
    """Give a function that launches for some seconds in a process of its own.

    It returns the mean seconds of a launch.
    """
    process = subprocess.Popen(
        (sys.executable, "-m", "bench.busy", kind, *map(str, size)),
        env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def ask(seconds: float) -> float:
        print(seconds, file=process.stdin, flush=True)
        return float(process.stdout.readline())  # type: ignore[union-attr]  # it is a pipe

    try:
        yield ask
    finally:
        process.kill()
        process.communicate()


@contextmanager
def load(count: int) -> Iterator[None]:
    """Keep so many processes busy."""
    command = (sys.executable, "-c", _BUSY, str(LOAD_SECONDS))
    busy = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main(kind: str, *size: str) -> None:
    run = programs.on(kind, programs.heat_of(*map(int, size)), {}).timer()
    for line in sys.stdin:
        start, launches = time.perf_counter(), 0
        while time.perf_counter() < start + float(line):
            run(1)
            launches += 1
        print((time.perf_counter() - start) / launches, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Timing for noisy machines: candidates take turns, and ratios are medians of pairs of rounds."""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable, Mapping
from typing import NamedTuple

OURS = "hal"


class Effort(NamedTuple):
    """The number of rounds, and their length."""

    rounds: int
    seconds: float  # that one candidate runs in one round

    def rarely(self) -> Effort:
        """Return a smaller effort, for candidates that take milliseconds or are whole processes."""
        return Effort(max(5, self.rounds // 3), 0.0)


ROW_SECONDS = 30.0  # after which no further rounds of a row begin
LEAST_ROUNDS = 4  # of each row, however long they take

QUICK = Effort(9, 0.001)
FULL = Effort(60, 0.004)


class Task(NamedTuple):
    """A statement to time; executed once, it does the measured thing `repeats` times."""

    statement: str
    names: Mapping[str, object]
    repeats: int = 1
    after: Callable[[], object] | None = None  # runs untimed: a wait for started work

    def timer(self) -> Callable[[int], float]:
        """Return a function that gives the seconds of so many executions."""
        timer = timeit.Timer(self.statement, globals=dict(self.names))

        def run(count: int) -> float:
            spent = timer.timeit(count)
            if self.after is not None:
                self.after()
            return spent

        return run


def call(function: Callable[[], object], repeats: int = 1) -> Task:
    """Make a task of a function so slow that one more Python call does not matter."""
    return Task("function()", {"function": function}, repeats)


class Times:
    """Seconds of each candidate, one entry a round; entry i of all candidates is one round."""

    def __init__(self, rounds: dict[str, list[float]]) -> None:
        self.rounds = rounds

    def best(self, name: str) -> float:
        return min(self.rounds[name])

    def typical(self, name: str) -> float:
        return statistics.median(self.rounds[name])

    def ratio(self, name: str, other: str) -> float:
        """Return the median of name / other over pairs of rounds: a slow phase slows both down.

        A pair has each order once. Who is second in one round is first in the next: it finds its
        data in the cache, and the other does not.
        """
        mine, its = self.rounds[name], self.rounds[other]
        starts = range(0, len(mine) - 1, 2)
        return statistics.median((mine[n] + mine[n + 1]) / (its[n] + its[n + 1]) for n in starts)

    def allow(self, name: str, more: float) -> str:
        """Add a candidate that takes so many seconds more than another; return its name."""
        added = f"{name} + {1e3 * more:g} ms"
        self.rounds[added] = [spent + more for spent in self.rounds[name]]
        return added


SETTLED = 0.05  # seconds after which threads of other libraries have stopped looking for work


def compare(tasks: Mapping[str, Task], effort: Effort, pause: float = 0.0) -> Times:
    """Run the tasks in turn, every other round in reverse order, as often as `effort` says.

    An odd number of rounds grows by one, so that each order has as many; where rounds take seconds,
    there are fewer. Each task waits `pause` seconds first: threads that look for more work would
    share its cores.
    """
    timers = {name: task.timer() for name, task in tasks.items()}
    counts = {name: _count(timer, effort.seconds) for name, timer in timers.items()}
    empty = min(timeit.repeat("pass", number=100_000, repeat=5)) / 100_000
    order = list(tasks)
    rounds: dict[str, list[float]] = {name: [] for name in order}
    end = time.perf_counter() + ROW_SECONDS
    for turn in range(effort.rounds + effort.rounds % 2):
        if turn >= LEAST_ROUNDS and turn % 2 == 0 and time.perf_counter() > end:
            break
        for name in order if turn % 2 else reversed(order):
            time.sleep(pause)
            spent = timers[name](counts[name]) / counts[name] - empty
            rounds[name].append(spent / tasks[name].repeats)
    return Times(rounds)


def _count(run: Callable[[int], float], seconds: float) -> int:
    """Return how many executions last `seconds`. The first ones warm up and do not count."""
    run(1)
    count = 1
    while (spent := run(count)) < seconds and count < 1 << 20:
        count = max(count * 2, int(count * seconds / max(spent, 1e-7)))
    return count

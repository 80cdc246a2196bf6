"""A campaign: all points in some order, played in forked processes that are watched."""

import os
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter, deque
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import NamedTuple, TypeVar

from interrupts import child
from interrupts.child import FIRST, LATER, MOMENT, Point

_TOGETHER = 25  # points for which one process is warmed up
_PATIENCE = 1.5  # times the limit, until a process that did not end itself is ended


T = TypeVar("T")


class Outcome(NamedTuple):
    point: Point
    struck: bool  # False: the work ended before the point
    fault: str = ""


class Campaign:
    """Plays points in `jobs` processes at once, each at most `seconds`."""

    def __init__(self, jobs, seconds):
        self.jobs, self.seconds = jobs, seconds
        self.files = child.preload()
        self.folder = tempfile.mkdtemp(prefix="interrupts-")  # a child must not remove it
        self._free = [f"{self.folder}/{number}" for number in range(jobs)]

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, question):
        """Return the answer of a new process, or why there is none."""

        def work(out):
            try:
                out.send(question())
            except BaseException as error:
                out.send(f"{type(error).__name__}: {error}")

        running = _Process(self, work)
        try:
            answer = running.results.recv()
        except EOFError:
            answer = ""
        return running.said() if running.end() else answer

    def play(self, batches):
        """Play batches of points; those of one share device, scene and kind."""
        waiting, running = iter(batches), dict[Connection, _Batch]()
        try:
            while True:
                while len(running) < self.jobs and (points := next(waiting, None)):
                    one = _Batch(self, points)
                    running[one.results] = one
                if not running:
                    return
                for ready in wait(list(running), timeout=1.0):
                    yield from running[ready].hear()  # type: ignore[index]
                for key, one in list(running.items()):
                    if one.ended:
                        del running[key]
                        if one.points:
                            again = _Batch(self, one.points)
                            running[again.results] = again
                    elif time.monotonic() - one.since > _PATIENCE * self.seconds:
                        os.kill(one.process, signal.SIGKILL)
        finally:
            for one in running.values():
                if not one.ended:
                    os.kill(one.process, signal.SIGKILL)
                    one.end()


class _Process:
    def __init__(self, campaign, work):
        self.campaign, self.folder = campaign, campaign._free.pop()
        self.log, self.since = Path(f"{self.folder}.log"), time.monotonic()
        self.results, into = Pipe(duplex=False)
        self.process = os.fork()
        if self.process == 0:
            self._be(work, into)
        into.close()

    def _be(self, work, into):
        status = 1
        try:
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            child.enter(self.folder, log, self.campaign.seconds)
            work(into)
            into.close()
            child.leave(self.campaign.seconds)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def end(self):
        """Wait for its end; return its status, below 0 the number of the signal that ended it."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        self.results.close()
        self.campaign._free.append(self.folder)
        return status

    def said(self):
        return self.log.read_text("utf-8", errors="replace").strip()


class _Batch(_Process):
    def __init__(self, campaign, points):
        self.points, self.ended, self._last = deque(points), False, points[-1]
        files, seconds = campaign.files, campaign.seconds
        super().__init__(campaign, lambda out: child.play_all(points, files, seconds, out))

    def hear(self):
        self.since = time.monotonic()
        try:
            result = self.results.recv()
        except EOFError:
            status, self.ended = self.end(), True
            if status:
                point = self.points.popleft() if self.points else self._last
                said = self.said()
                why = "it hangs" if "Timeout" in said else f"the process ended with {status}"
                yield Outcome(point, True, f"{why}\n{said}")
            return
        point = self.points.popleft()
        yield Outcome(point, bool(result), result if isinstance(result, str) else "")


def chosen(counts):
    """Return every place of the scenes, in new processes and in warm ones."""
    return [
        Point(device, scene, kind, number)
        for (device, scene), found in counts.items()
        for kind, places in ((FIRST, found.first), (LATER, found.later))
        for number in range(places)
    ]


def batches(points, source):
    """Put points in an order by chance, and those together that one process can play."""
    together = {}
    for point in points:
        together.setdefault(point[:3], []).append(point)
    found = []
    for (_, _, kind), group in together.items():
        source.shuffle(group)
        size = 1 if kind == FIRST else _TOGETHER
        found += [group[start : start + size] for start in range(0, len(group), size)]
    source.shuffle(found)
    return found


def moments(counts, source):
    """Yield batches of moments by chance, without an end."""
    scenes = list(counts.items())
    while True:
        (device, scene), found = source.choice(scenes)
        longest = 2 + 5 * found.microseconds // 4
        yield [Point(device, scene, MOMENT, source.randrange(1, longest)) for _ in range(_TOGETHER)]


def sample(scenes, number, source):
    """Yield so many places and moments of each scene, drawn without counting what it has."""
    kinds = ((LATER, 1 << 30), (MOMENT, 1000))
    for scene in scenes:
        yield [
            Point(*scene, kind, source.randrange(1, most))
            for kind, most in kinds
            for _ in range(number)
        ]


class Tally:
    """Count the points that were played on each device, and keep what was found."""

    def __init__(self):
        self.struck = Counter()
        self.played = Counter()
        self.findings = []

    def add(self, outcome):
        key = outcome.point.device, outcome.point.kind
        self.played[key] += 1
        self.struck[key] += outcome.struck
        if outcome.fault:
            self.findings.append(outcome)

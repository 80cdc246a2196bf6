"""Many cases on several targets, in processes that may end or hang."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path

from device import TARGETS
from generator import generate
from harness import ENDED, MISSING, WRONG, Verdict
from reduce import reduced

WORKER = (sys.executable, str(Path(__file__).with_name("worker.py")))
JOBS = 500  # a process: a loaded program keeps some memory
PATIENCE = 120.0  # seconds for one kernel, or for the compilation of several


def together(names):
    """The targets by the process that runs them."""
    shared = [name for name in names if not TARGETS[name].alone]
    return [*([shared] if shared else []), *([name] for name in names if TARGETS[name].alone)]


def verdicts(names, first, count, batch=1, worker=WORKER):
    """Each number on each target of one process; a target that is missing says so once.

    So many numbers, a `batch`, are compiled at once where a target can. Where a process ends in the
    middle of one, the numbers that it owes are done one by one.
    """
    end, missing = first + count, set[str]()
    jobs = deque(
        (name, list(range(begin, min(begin + batch, end))))
        for begin in range(first, end, batch)
        for name in names
    )
    while jobs:
        with _started(worker) as (ask, answer):
            for _ in range(JOBS):
                if not jobs:
                    break
                name, numbers = jobs.popleft()
                if name in missing:
                    continue
                ask(f"{name} {' '.join(map(str, numbers))}")
                while numbers and (verdict := answer()).kind != ENDED:
                    yield numbers.pop(0), name, verdict
                    if verdict.kind == MISSING:
                        missing.add(name)
                        numbers.clear()
                if len(numbers) == 1:
                    yield numbers[0], name, verdict._replace(kind=WRONG)
                elif numbers:
                    jobs.extendleft((name, [number]) for number in reversed(numbers))
                if numbers:
                    break


@contextmanager
def _started(command):
    """A process, as two functions: one sends it a line, one gives its next verdict.

    That is ENDED when the process has ended, or has given no verdict for too long.
    """
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace",
    ) as process:  # fmt: skip
        lines = queue.SimpleQueue()
        errors = []
        readers = [
            threading.Thread(target=_read, args=(process.stdout, lines.put)),
            threading.Thread(target=_read, args=(process.stderr, errors.append)),
        ]
        for reader in readers:
            reader.start()

        def ask(line):
            with suppress(BrokenPipeError):  # then there is no answer
                print(line, file=process.stdin, flush=True)

        def answer():
            try:
                line = lines.get(timeout=PATIENCE)
            except queue.Empty:
                return Verdict(ENDED, f"no answer within {PATIENCE:.0f} seconds")
            if line is None:
                return Verdict(ENDED, f"the process ended with {process.wait()}")
            return Verdict(**json.loads(line))

        try:
            yield ask, answer
        finally:
            process.kill()
            with suppress(BrokenPipeError):  # a line that nobody has read
                process.stdin.close()
            for reader in readers:
                reader.join()
    if process.returncode not in (0, -9):
        print("".join(filter(None, errors))[-2000:], file=sys.stderr)


def _read(stream, put):
    for line in stream or ():
        put(line)
    put(None)


def small(target, seed):
    """The failing case as Python, made small."""
    done = subprocess.run(
        [*WORKER, target, str(seed)], capture_output=True, text=True, timeout=1800
    )
    if not done.returncode:
        return done.stdout
    end = time.monotonic() + PATIENCE * 3
    case = reduced(
        generate(seed, TARGETS[target].kinds),
        lambda changed: time.monotonic() < end and _ends(target, changed),
    )
    return f"{case}\n# the process ends"


def _ends(target, case):
    """Tell whether the case ends its process."""
    command = [*WORKER, target, str(case.seed), "-"]
    done = subprocess.run(command, input=case.source, capture_output=True, text=True)
    return done.returncode != 0

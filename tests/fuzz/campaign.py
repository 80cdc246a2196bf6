"""Many cases on one target, in processes that may end or hang."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from case import Case
from device import TARGETS
from generator import generate
from harness import WRONG, Verdict
from reduce import reduced

WORKER = Path(__file__).with_name("worker.py")
BATCH = 500  # kernels a process: a loaded program keeps some memory
PATIENCE = 120.0  # seconds for one kernel


class Missing(Exception):
    """The target is not on this machine; the text says why."""


def verdicts(target: str, first: int, count: int) -> Iterator[tuple[int, Verdict]]:
    """Each number with what became of it. Raises: Missing."""
    number, end = first, first + count
    while number < end:
        for seed, verdict in _batch(target, number, min(end, number + BATCH)):
            yield seed, verdict
            number = seed + 1


def _batch(target: str, first: int, end: int) -> Iterator[tuple[int, Verdict]]:
    """Up to `end`, or to the first case that ends its process or hangs."""
    command = [sys.executable, str(WORKER), target, str(first), str(end)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        errors: list[str] = []
        readers = [
            threading.Thread(target=_read, args=(process.stdout, lines.put)),
            threading.Thread(target=_read, args=(process.stderr, errors.append)),
        ]
        for reader in readers:
            reader.start()
        try:
            yield from _answers(lines, first, end, process)
        finally:
            process.kill()
            for reader in readers:
                reader.join()
    if process.returncode not in (0, -9):
        print("".join(filter(None, errors))[-2000:], file=sys.stderr)


def _answers(
    lines: queue.SimpleQueue[str | None], first: int, end: int, process: subprocess.Popen[str]
) -> Iterator[tuple[int, Verdict]]:
    for number in range(first, end):
        try:
            line = lines.get(timeout=PATIENCE)
        except queue.Empty:
            yield number, Verdict(WRONG, f"no answer within {PATIENCE:.0f} seconds")
            return
        if line is None:
            yield number, Verdict(WRONG, f"the process ended with {process.wait()}")
            return
        answer = json.loads(line)
        if "missing" in answer:
            raise Missing(answer["missing"])
        yield answer["seed"], Verdict(answer["kind"], answer["why"])


def _read(stream: object, put: object) -> None:
    for line in stream:  # type: ignore[attr-defined]
        put(line)  # type: ignore[operator]
    put(None)  # type: ignore[operator]


def small(target: str, seed: int) -> str:
    """The failing case as Python, made small."""
    command = [sys.executable, str(WORKER), target, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if not done.returncode:
        return done.stdout
    end = time.monotonic() + PATIENCE * 3
    case = reduced(
        generate(seed, TARGETS[target].kinds),
        lambda changed: time.monotonic() < end and _ends(target, changed),
    )
    return f"{case}\n# the process ends"


def _ends(target: str, case: Case) -> bool:
    """Tell whether the case ends its process."""
    command = [sys.executable, str(WORKER), target, str(case.seed), "-"]
    done = subprocess.run(command, input=case.source, capture_output=True, text=True)
    return done.returncode != 0

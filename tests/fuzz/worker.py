"""Runs cases in a process of its own, which a wrong kernel may take down: a line of JSON a case.

`python worker.py TARGET FIRST END` runs those numbers, `python worker.py TARGET SEED` makes a
failing one small and prints it, `python worker.py TARGET SEED -` runs it with another text.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from case import Case
from device import TARGETS, opened
from generator import generate
from harness import WRONG, Runner, Verdict
from reduce import reduced


def verdict(runner: Runner, case: Case) -> Verdict:
    """What the runner says; an error it does not expect is a finding too."""
    try:
        return runner.run(case)
    except Exception as error:
        return Verdict(WRONG, f"not expected: {type(error).__name__}: {error}")


def _sort(verdict: Verdict) -> str:
    """Two failures of one sort are taken for the same."""
    if verdict.kind != WRONG:
        return ""
    error = re.match(r"(not expected: )?\w+(Error|Kernel)", verdict.why)
    return error[0] if error else WRONG


def small(runner: Runner, case: Case) -> str:
    """The case made small, as Python, and what is wrong with it."""
    how = _sort(verdict(runner, case))
    if not how:  # it depends on more than the kernel, which would be made small to nothing
        return f"{case}\n# not wrong this time"
    found = reduced(case, lambda changed: _sort(verdict(runner, changed)) == how)
    return f"{found}\n# {verdict(runner, found).why}"


def main() -> None:
    name, first, *end = sys.argv[1:]
    runner, kinds = opened(name), TARGETS[name].kinds
    if runner.why:
        print(json.dumps({"missing": runner.why}), flush=True)
    elif end == ["-"]:
        verdict(runner, generate(int(first), kinds)._replace(source=sys.stdin.read()))
    elif end:
        for seed in range(int(first), int(end[0])):
            kind, why = verdict(runner, generate(seed, kinds))
            print(json.dumps({"seed": seed, "kind": kind, "why": why}), flush=True)
    else:
        print(small(runner, generate(int(first), kinds)))


if __name__ == "__main__":
    main()

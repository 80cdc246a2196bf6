"""Runs cases in a process of its own, which a wrong kernel may take down.

`python worker.py` answers lines of its input. `python worker.py TARGET SEED` makes a failing case
small and prints it, `python worker.py TARGET SEED -` runs it with another text.
"""

import json
import re
import sys
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from device import TARGETS, opened
from generator import generate
from harness import MISSING, WRONG, Trial, Verdict
from reduce import reduced


def verdict(runner, tried):
    """What the runner says; an error it does not expect is a finding too."""
    try:
        return runner.run(tried if isinstance(tried, Trial) else Trial(tried))
    except Exception as error:
        return Verdict(WRONG, f"not expected: {type(error).__name__}: {error}")


def _sort(verdict):
    """Two failures of one sort are taken for the same."""
    if verdict.kind != WRONG:
        return ""
    error = re.match(r"(not expected: )?\w+(Error|Kernel)", verdict.why)
    return error[0] if error else WRONG


def small(runner, case):
    """The case made small, as Python, and what is wrong with it."""
    how = _sort(verdict(runner, case))
    if not how:  # it depends on more than the kernel, which would be made small to nothing
        return f"{case}\n# not wrong this time"
    found = reduced(case, lambda changed: _sort(verdict(runner, changed)) == how)
    return f"{found}\n# {verdict(runner, found).why}"


@lru_cache(256)
def trial(kinds, seed):
    return Trial(generate(seed, kinds))


def judged(runner, trials):
    """The verdicts of kernels that are compiled at once; a finding is that of the kernel alone."""
    refused = runner.prepare(trials) if len(trials) > 1 else ""
    for one in trials:
        found = verdict(runner, one)
        if found.kind == WRONG and len(trials) > 1:
            alone = verdict(runner, one)  # what was prepared is used up
            others = f"only beside {[other.case.seed for other in trials]}: {found.why}"
            found = alone if alone.kind == WRONG else Verdict(WRONG, others)
        if refused and one is trials[-1]:
            found = found if found.kind == WRONG else Verdict(WRONG, refused)
        yield found


def serve():
    """Read `TARGET NUMBER NUMBER ...`, write a verdict for each; all are compiled at once."""
    runners = {}
    for line in sys.stdin:
        name, *numbers = line.split()
        if name not in runners:
            runners[name] = opened(name)
        runner = runners[name]
        if runner.why:
            print(json.dumps(Verdict(MISSING, runner.why)._asdict()), flush=True)
            continue
        trials = [trial(TARGETS[name].kinds, int(number)) for number in numbers]
        for found in judged(runner, trials):
            print(json.dumps(found._asdict()), flush=True)


def main():
    if len(sys.argv) == 1:
        return serve()
    name, seed, *more = sys.argv[1:]
    runner, case = opened(name), generate(int(seed), TARGETS[name].kinds)
    if runner.why:
        print(f"{name} is not on this machine: {runner.why}")
    elif more:
        verdict(runner, case._replace(source=sys.stdin.read()))
    else:
        print(small(runner, case))
    return None


if __name__ == "__main__":
    main()

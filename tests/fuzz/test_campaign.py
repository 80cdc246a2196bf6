"""Long runs: kernels compiled at once, processes that end, one interpretation for all targets."""

import re
import sys

import harness
import pytest
from campaign import verdicts
from case import Case, Place
from device import joined
from generator import generate
from harness import MISSING, OK, WRONG, Runner, Trial, Verdict
from worker import judged

from hal_core.dtypes import int32

# A worker that ends at number 5 of target b; target c is not there.
DYING = """
import json, os, sys
for line in sys.stdin:
    name, *numbers = line.split()
    for number in numbers:
        if (name, number) == ("b", "5"):
            os._exit(3)
        print(json.dumps({"kind": "missing" if name == "c" else "ok", "why": name}), flush=True)
        if name == "c":
            break
"""

SUBGROUPS = """
import hal_core as hal

@hal.kernel
def fuzzed(y: hal.Ptr[hal.int32]):
    y[hal.global_idx(0)] = hal.subgroup_size()
"""


def test_a_process_that_ends_costs_one_kernel():
    found = list(verdicts(["a", "b", "c"], 0, 10, 4, [sys.executable, "-c", DYING]))
    assert [row for row in found if row[2].kind != OK] == [
        (0, "c", Verdict(MISSING, "c")),
        (5, "b", Verdict(WRONG, "the process ended with 3")),
    ]
    run = [(number, name) for number, name, _ in found if name != "c"]
    assert sorted(run) == [(number, name) for number in range(10) for name in "ab"]


class Expected(Runner):
    """A device that computes what is expected, but for kernels that were made ready together."""

    def __init__(self, wrong, alone, refused=""):
        self.wrong, self.alone, self.refused = wrong, alone, refused
        self.ready = set()
        self.trial: Trial

    def prepare(self, trials):
        self.ready = {trial.case.seed for trial in trials}
        return self.refused

    def run(self, trial):
        self.trial = trial
        return super().run(trial)

    def launch(self, kernel, case, before):
        got = [array.copy() for array in self.trial.expected(self.subgroup)]
        if case.seed == self.wrong and (self.alone or case.seed in self.ready):
            got[-1][0] = got[-1][0] == 0
        self.ready.discard(case.seed)
        return got


@pytest.mark.parametrize(("alone", "said"), [(True, r"\w+\[-\d+\] is"), (False, "only beside ")])
def test_a_difference_is_that_of_one_kernel(alone, said):
    trials = [Trial(generate(seed)) for seed in range(3)]
    found = list(judged(Expected(1, alone), trials))
    assert [verdict.kind for verdict in found] == [OK, WRONG, OK]
    assert re.match(said, found[1].why), found[1].why


def test_kernels_that_are_refused_together_are_a_finding():
    trials = [Trial(generate(seed)) for seed in range(2)]
    found = list(judged(Expected(9, True, "refused"), trials))
    assert found == [Verdict(OK), Verdict(WRONG, "refused")]


def test_a_case_is_interpreted_once_for_all_targets(monkeypatch):
    """But for each size of subgroups, where the kernel sees them."""
    calls = []
    interpret = harness.interpret

    def counted(*given, **how):
        calls.append(how["subgroup"])
        interpret(*given, **how)

    monkeypatch.setattr(harness, "interpret", counted)
    for source, times in ((SUBGROUPS, 2), (SUBGROUPS.replace("hal.subgroup_size()", "2"), 1)):
        trial = Trial(Case(0, source, (Place("y", int32, 2),), (), {"grid": 1, "block": 2}))
        calls.clear()
        for size in (1, 1, 32, 32):
            trial.expected(size)
        assert len(calls) == times


def test_definitions_that_texts_share_are_there_once():
    assert joined(["a {\n}\n\nb", "c\n\na {\n}\n\nd"]) == "a {\n}\n\nb\n\nc\n\nd"

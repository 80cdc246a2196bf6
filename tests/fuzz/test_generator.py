"""The fuzzer itself: what it draws, that it sees what is wrong, and how it makes that small."""

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from generator import generate
from harness import OK, WRONG, Runner, Trial, Verdict
from reduce import reduced
from worker import small, verdict

from hal_kernel.interpreter import interpret
from hal_kernel.interpreter.operations import OPERATIONS
from hal_kernel.ir.uop import ATOMICS, ORDERS

Array = Any


class Interpreted(Runner):
    """A device that is the interpreter, with one operation done another way."""

    def __init__(self, op="ADD", wrong=None):
        self.op, self.wrong = op, wrong or OPERATIONS[op]

    def launch(self, kernel, case, before):
        right, OPERATIONS[self.op] = OPERATIONS[self.op], self.wrong
        try:
            inside = [array[case.guard : -case.guard] for array in before]
            interpret(kernel, *inside, vals=case.vals, races=False, **case.launch)
        finally:
            OPERATIONS[self.op] = right
        return before


def test_a_number_is_a_kernel():
    assert generate(5) == generate(5)
    assert generate(5).source != generate(6).source


def test_kernels_have_a_meaning_and_use_the_whole_language():
    """None is thrown away; the operations that few kernels have are in some of these."""
    seen = Counter()
    for seed in range(160):
        trial = Trial(generate(seed))
        if seed < 10:
            assert verdict(Interpreted(), trial) == Verdict(OK), trial.case
        for node in trial.kernel.lower().uops:
            seen[node.op] += 1
            seen[f"{node.op} {node.arg}"] += node.op in ("ATOMIC", *ORDERS, "LOAD", "STORE")
    wanted = {*OPERATIONS, "BITCAST", "CAST", "SHARED", "LOCAL", "TABLE", "BARRIER", "CAS", "RANGE"}
    wanted |= {"LOOP", "ASSERT", "PRINT", "FENCE", "SHUFFLE", "BALLOT"}
    wanted |= {f"LOAD {(0, count)}" for count in (2, 4, 8)} | {"STORE (0, 2)", "STORE (0, 4)"}
    wanted |= {"BREAK", "CONTINUE", "RETURN", *(f"ATOMIC {kind}" for kind in ATOMICS)}
    wanted |= {f"{op} {order}" for op, orders in ORDERS.items() for order in orders}
    assert {op for op in wanted if not seen[op]} == set()


# Each with the first kernel that finds it: looking for that one takes seconds.
MUTANTS = [
    ("FLOORDIV", 31, lambda a, b: np.where(b == 0, 0, np.trunc(a / np.where(b == 0, 1, b)))
     .astype(a.dtype)),
    ("MOD", 1, lambda a, b: np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b)))),
    ("SHR", 30, lambda a, b: np.right_shift(a, np.clip(b, 0, 8 * b.itemsize - 1))),
    ("MIN", 46, np.fmin),
    ("MAX", 0, lambda a, b: np.where(a > b, a, b)),
    ("FMA", 281, lambda a, b, c: a * b + c),
    ("ROUND", 370, lambda a: np.floor(a + a.dtype.type(0.5))),
    ("NE", 196, lambda a, b: (a < b) | (a > b)),
]  # fmt: skip


def first_found(runner, likely):
    """The number of a kernel that finds what is wrong; another one after a change of `generate`."""
    seeds = [likely, *range(1000)]
    return next(seed for seed in seeds if verdict(runner, generate(seed)).kind == WRONG)


@pytest.mark.parametrize(("op", "likely", "wrong"), MUTANTS, ids=[row[0] for row in MUTANTS])
def test_a_wrong_operation_is_found(op, likely, wrong):
    assert first_found(Interpreted(op, wrong), likely) >= 0


def test_a_write_beside_a_view_is_found():
    class Careless(Interpreted):
        def launch(self, kernel, case, before):
            got = super().launch(kernel, case, before)
            got[-1][-case.guard] = got[-1][-case.guard] == 0
            return got

    found = verdict(Careless(), generate(3))
    assert found.kind == WRONG
    assert re.match(r"\w+\[\d+\] is ", found.why)


def test_a_failing_kernel_is_made_small():
    op, likely, wrong = MUTANTS[-1]
    runner = Interpreted(op, wrong)
    seed = first_found(runner, likely)
    case = reduced(generate(seed), lambda changed: verdict(runner, changed).kind == WRONG)
    assert verdict(runner, case).kind == WRONG
    body = case.source.split("def fuzzed")[1].splitlines()[1:]
    assert len(body) <= 8, case.source
    assert "!=" in case.source or "bool_" in case.source


def test_a_case_that_does_not_fail_again_is_not_made_small():
    case = generate(3)
    assert small(Interpreted(), case) == f"{case}\n# not wrong this time"

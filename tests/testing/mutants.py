"""Mutants: fake backends that each break one promise, and a pytest plugin that applies one."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import hal_core as hal
from hal_testing.fake import FakePlugin


class Mutant(NamedTuple):
    name: str
    spoil: Callable[[], None]  # changes a class for the rest of the process
    chapters: tuple[str, ...]  # of which one must notice
    promises: tuple[str, ...]  # one of their tests must fail


CAUGHT = "caught"  # a file beside the output: the test that failed, and how
MUTANTS = {}
MODULES = (
    "mutants_of_memory", "mutants_of_interchange", "mutants_of_launches", "mutants_of_compilers",
    "mutants_of_events", "mutants_of_many", "mutants_of_queues", "mutants_of_graphs",
)  # fmt: skip


def every():
    for module in MODULES:
        importlib.import_module(module)
    return MUTANTS


def mutant(promises, chapters, owner=None, method=""):
    """Register a function that breaks something, with the promises that this violates.

    With an `owner`, the function stands `around` its method.
    """

    def enter(made):
        spoil = made if owner is None else lambda: around(owner, method)(made)
        name = made.__name__
        MUTANTS[name] = Mutant(name, spoil, tuple(chapters.split()), tuple(promises.split()))
        return made

    return enter


def around(owner, name):
    """Replace a method by the decorated function, whose first argument is the real method."""
    inner = getattr(owner, name)

    def put(method):
        setattr(owner, name, lambda *args, **named: method(inner, *args, **named))

    return put


# -- as a pytest plugin


def facts(fake):
    """Return the facts by which the fake of this name differs from the plain one."""
    from hal_testing.fake.device import CAPABILITIES, LIMITS

    small = LIMITS._replace(
        max_block=(64, 32, 8), max_block_threads=64, max_grid=(70_000, 1000, 100),
        shared_nbytes=4096, view_alignment=256, max_alloc_nbytes=8 << 20,
    )  # fmt: skip
    made = {
        "": {},
        "forks": {"capabilities": CAPABILITIES | {"subprocess_fork"}},
        "least": {  # and no dtype of 64 bits
            "devices": 1, "memory_nbytes": 16 << 20, "limits": small,
            "capabilities": frozenset({"timing", "disassemble"}),
        },
    }  # fmt: skip
    return made[fake]


def pytest_configure(config):
    from hal_testing.conformance import forked, test_graph, test_queue, threads

    # What hangs in a mutant hangs for ever.
    for module in (forked, test_graph, test_queue, threads):
        module.SECONDS = 1.5 if os.environ["HAL_MUTANT"] else 20.0
    hal.Device.register_plugin("FAKE", FakePlugin(**facts(os.environ["HAL_FAKE"])))
    if os.environ["HAL_FAKE"] == "least":
        from hal_kernel.render.uops import UOpsRenderer

        every_dtype = UOpsRenderer.dtypes
        UOpsRenderer.dtypes = frozenset(dtype for dtype in every_dtype if dtype.itemsize < 8)
    name = os.environ["HAL_MUTANT"]
    if name:
        every()[name].spoil()


def pytest_runtest_logreport(report):
    """End the process at the first failure: a broken fake could hang the following tests."""
    if os.environ["HAL_MUTANT"] and report.when == "call" and report.failed:
        Path(CAUGHT).write_text(f"{report.nodeid}\n{report.longreprtext}", encoding="utf-8")
        os._exit(1)


@pytest.fixture
def hal_fault():
    def fail(program):
        device = program.device
        device.chip.fail("run")

    return fail

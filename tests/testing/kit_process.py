"""Run the conformance kit in a process of its own, on a fake backend that may be a mutant.

Processes are forked from one that has imported everything, so a run costs no more than its tests.
"""

import multiprocessing
import os
import sys
import threading
from multiprocessing import forkserver
from pathlib import Path
from typing import NamedTuple

import mutants
import pytest

PACKAGE = "hal_testing.conformance"
SECONDS = 150

INI = """[pytest]
filterwarnings =
    error
    ignore:assertions not in test modules:pytest.PytestConfigWarning
    ignore:Module already imported so cannot be rewritten; mutants:pytest.PytestAssertRewriteWarning
"""

_PRELOAD = ["pytest", "numpy", "mutants", *mutants.MODULES, "collected"]
_FORKS = "forkserver" in multiprocessing.get_all_start_methods()
_processes = multiprocessing.get_context("forkserver" if _FORKS else "spawn")
_lock = threading.Lock()


class Outcome(NamedTuple):
    code: int | None  # pytest's; None: it did not end
    text: str  # what pytest said
    caught: str = ""  # a mutant: the test that failed, and how


def run_kit(folder, *arguments, chapters=(), text="", mutant="", fake=""):
    """Run some chapters, or all, or a test file with this `text`. `fake`: see mutants.facts."""
    folder.mkdir(exist_ok=True)
    modules = [f"{PACKAGE}.test_{chapter}" for chapter in chapters] or [PACKAGE]
    if text:
        (folder / "test_own.py").write_text(text, encoding="utf-8")
        modules = ["test_own.py"]
    asked = (*arguments, "--pyargs", *modules)
    _begin()
    process = _processes.Process(target=_kit, args=(str(folder), asked, mutant, fake), daemon=True)
    process.start()
    process.join(SECONDS)
    process.kill()
    output, caught = (
        path.read_text(encoding="utf-8") if path.exists() else ""
        for path in (folder / "output", folder / mutants.CAUGHT)
    )
    return Outcome(process.exitcode, output, caught)


def _begin():
    """Start the process from which the others are forked, if it does not run yet."""
    if not _FORKS:
        return
    with _lock, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
        _processes.set_forkserver_preload(_PRELOAD)
        forkserver.ensure_running()


def _kit(folder, arguments, mutant, fake):
    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(os.open("output", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    Path("pytest.ini").write_text(INI)
    os.environ |= {"HAL_MUTANT": mutant, "HAL_FAKE": fake, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    code = pytest.main(
        [
            "-q", "-rfEs", "--tb=native", "-p", "no:cacheprovider",
            "-p", "hal_testing.plugin", "-p", "mutants", "--hal-device", "FAKE",
            "--hal-require-device", "--hal-time-limit", "30", *arguments,
        ]
    )  # fmt: skip
    sys.stdout.flush()
    os._exit(code)

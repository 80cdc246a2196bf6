"""The conformance kit in a process of its own, on a fake that may be a mutant.

Processes are forked from one that has imported everything, so a run costs what its tests do.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import NamedTuple

import mutants
import pytest

PACKAGE = "hal_core.testing.conformance"
SECONDS = 150

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    ["pytest", "numpy", "hal_core.testing.plugin", PACKAGE, "mutants", *mutants.MODULES]
)


class Outcome(NamedTuple):
    code: int | None  # pytest's; None: it did not end
    text: str  # what pytest said
    caught: str = ""  # a mutant: the test that failed, and how


def run_kit(
    folder: Path,
    *arguments: str,
    chapters: tuple[str, ...] = (),
    text: str = "",
    mutant: str = "",
    fake: str = "",
) -> Outcome:
    """Of some chapters or all, or of a test file with this `text`. `fake`: see mutants.facts."""
    folder.mkdir(exist_ok=True)
    modules = [f"{PACKAGE}.test_{chapter}" for chapter in chapters] or [PACKAGE]
    if text:
        (folder / "test_own.py").write_text(text, encoding="utf-8")
        modules = ["test_own.py"]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    try:
        asked = (*arguments, "--pyargs", *modules)
        process = _forks.Process(target=_kit, args=(str(folder), asked, mutant, fake), daemon=True)
        process.start()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    process.join(SECONDS)
    process.kill()
    output, caught = (
        path.read_text(encoding="utf-8") if path.exists() else ""
        for path in (folder / "output", folder / mutants.CAUGHT)
    )
    return Outcome(process.exitcode, output, caught)


def _kit(folder: str, arguments: tuple[str, ...], mutant: str, fake: str) -> None:
    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(os.open("output", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    Path("pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    os.environ |= {"HAL_MUTANT": mutant, "HAL_FAKE": fake}
    code = pytest.main(
        [
            "-q", "-rfEs", "--tb=short", "--assert=plain", "-p", "no:cacheprovider",
            "-p", "no:xdist", "-p", "hal_core.testing.plugin", "-p", "mutants",
            "--hal-device", "FAKE", "--hal-require-device", "--hal-time-limit", "30",
            *arguments,
        ]
    )  # fmt: skip
    sys.stdout.flush()
    os._exit(code)

"""Share a folder, and a list of what is left out, among the sessions of one run of nox."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path


@functools.cache
def folder() -> Path:
    """Return a folder for this run's wheels and builds; it is gone when nox ends."""
    made = Path(tempfile.mkdtemp(prefix="hal-dist-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    atexit.register(_say_what_was_left_out)  # before the folder goes
    return made


def left_out() -> Path:
    """Return the file to which sessions and pytest add what they leave out: a package, and why."""
    return folder() / "left-out.txt"


def _say_what_was_left_out() -> None:
    """Print one line at the end of a run: what this machine lacks, and what installs it."""
    lines = left_out().read_text(encoding="utf-8") if left_out().exists() else ""
    lacking: dict[str, list[str]] = {}
    for line in lines.splitlines():
        package, _, what = line.partition(" ")
        lacking.setdefault(package, []).append(what)
    said = []
    for package, found in lacking.items():
        tests = sum(int(what) for what in found if what.isdigit())
        said += [f"{tests} tests that need {package}"] if tests else []
        said += dict.fromkeys(what for what in found if not what.isdigit())
    if said:
        print(f"Not run here: {', '.join(said)}. To run all: apt-get install {' '.join(lacking)}")

"""The tests of the repository: which of them a session runs, and how."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import nox

from sessions import drivers, one_run
from sessions.distributions import ROOT


def marked(*marks: str, under: Iterable[str] = ("plugins", "tests")) -> list[str]:
    """List the test files with one of these marks, and the folders whose conftest.py has one.

    `pytest -m` selects the same, but imports every file for it, and most of them import a backend
    or a compiler that a session may lack.
    """
    named = re.compile(rf"\bpytest\.mark\.({'|'.join(marks)})\b")
    places = [(ROOT / place, kind) for place in under for kind in ("test_*.py", "conftest.py")]
    files = sorted(path for place, kind in places for path in place.rglob(kind))
    files = [path for path in files if named.search(path.read_text(encoding="utf-8"))]
    if not files:
        raise LookupError(f"no test of {', '.join(under)} is marked {' or '.join(marks)}")
    found = [path.parent if path.name == "conftest.py" else path for path in files]
    return [str(path) for path in found if not any(folder in found for folder in path.parents)]


def every(*backends: str) -> list[str]:
    """List all files and folders of tests, with those of some backends, the longest first.

    One core would be idle at the end if it did not begin with them: compilers over every
    operation, the kit over broken backends, pages. Files, which start processes, follow.
    """
    tests = ROOT / "tests"
    longest = ("fuzz", "testing", "render", "ir", "repository", "streams", "profiling")
    places = [tests / name for name in longest]
    places += [ROOT / "plugins" / f"hal-{name}" / "tests" for name in backends]
    places += sorted(tests.glob("test_*.py"))
    places += sorted({path.parent for path in tests.glob("*/test_*.py")} - {*places})
    return [str(place) for place in places]


def settings(project: Path) -> list[str]:
    """Return the options of a run outside of a project, which only gives tests and settings."""
    config = str(project / "pyproject.toml")
    return ["-c", config, "--rootdir", str(project), "-p", "no:cacheprovider"]


# By name: pytest would rewrite the asserts of all packages that bring a plugin: in each new
# environment a second and a half for hypothesis alone, before the workers start.
_PLUGINS = ("xdist.plugin", "pytest_timeout", "_hypothesis_pytestplugin")


def run(
    session: nox.Session, *chosen: str, without: Iterable[str] = (), optimize: bool = False,
    require: Iterable[str] = (), options: Iterable[str] = (), only: str = "not full",
    **variables: str,
) -> None:  # fmt: skip
    """Run the chosen tests, or those that the command line names, on what is installed.

    The tests of the families in `require` fail where they would be skipped. `only` selects tests
    by marks: as a usual run does, without those that `nox -s full` has.
    """
    # The tests of a class, or else of a file, share what is dear to make. The kit has classes.
    config = [*settings(ROOT), "-n", "auto", "--dist", "loadscope", "--disable-plugin-autoload"]
    config += [f"-p{name}" for name in _PLUGINS]
    config += ["--no-loadscope-reorder"]  # in the order given, not those of most tests first
    config += ["--durations=12", "--durations-min=5", *options]
    config += [f"--ignore={path}" for path in without]
    config += [] if session.posargs else ["-m", only]
    arguments = session.posargs or [path for path in chosen if path not in without]
    # As variables, for the workers too: -P and, without asserts, -O.
    env = {"HAL_REQUIRE": ",".join(require), "PYTHONSAFEPATH": "1", **drivers.shared_builds()}
    env["TEST_LEFT_OUT"] = str(one_run.left_out())
    env |= {"PYTHONOPTIMIZE": "1"} if optimize else {}
    env |= variables
    session.run("python", "-m", "pytest", *config, *arguments, env=env)

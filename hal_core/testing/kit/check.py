"""`hal check`: the conformance kit, run in this process and shown in a few lines."""

from __future__ import annotations

import importlib.util
import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hal_core.errors import DeviceUnavailable, InvalidArgument, InvalidState, Unsupported
from hal_core.registry import Device

if TYPE_CHECKING:
    from hal_core.testing.kit.report import Report
    from hal_core.testing.kit.show import Shown

# Of the caller's pytest: it decides nothing here.
_NOT_OURS = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")


class Wanted(NamedTuple):
    """What to check, and how."""

    device: str
    pair: str | None = None  # a compiler pair of it; None: the one that serves
    chapters: Sequence[str] = ()  # none: all
    known_gaps: str | None = None  # a file
    reports: Sequence[str] = ()  # files to write
    require_device: bool = False


def check(wanted: Wanted) -> int:
    """Exit code: 0, also where there is no hardware and none is required; 1 when the device does
    not conform.

    Raises: InvalidArgument, UnknownDevice, Unsupported without pytest, CompilerUnavailable for a
    pair that is not installed, what keeps the backend from opening, and InvalidState where pytest
    came to no end.
    """
    if importlib.util.find_spec("pytest") is None:
        fix = 'Install it: python -m pip install "hal-core[testing]"'
        raise Unsupported("check", "the kit runs on pytest, which is not installed", fix=fix)
    from hal_core.testing.kit.report import chapters, check_suffix
    from hal_core.testing.kit.show import Shown

    for path in wanted.reports:
        check_suffix(Path(path))
    modules = _modules(chapters(), wanted.chapters)
    shown = Shown()
    try:
        name = Device.info(wanted.device).name
        with _forced(name, wanted.pair):
            Device[name].compiler  # noqa: B018  # said now rather than by every test
            report = _run(shown, name, modules, wanted.known_gaps)
    except DeviceUnavailable as error:
        if wanted.require_device:
            raise
        shown.line(f"{error} Nothing was checked; with --require-device this is a failure.")
        return 0
    shown.summary(report)
    for path in wanted.reports:
        report.write(Path(path))
    return 0 if report.has_passed else 1


def _modules(known: list[str], wanted: Sequence[str]) -> list[str]:
    for name in wanted:
        if name.lower() not in known:
            raise InvalidArgument(
                "check", "no such chapter", got=name, fix=f"There are {', '.join(known)}."
            )
    return [f"hal_core.testing.conformance.test_{name.lower()}" for name in wanted or known]


@contextmanager
def _forced(name: str, pair: str | None) -> Iterator[None]:
    """The environment of the run."""
    changed: dict[str, str | None] = dict.fromkeys(_NOT_OURS)
    changed["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    if pair is not None:
        changed[f"{name.partition(':')[0]}_CC"] = pair
    before = {key: os.environ.get(key) for key in changed}
    _put(changed)
    try:
        yield
    finally:
        _put(before)


def _put(variables: dict[str, str | None]) -> None:
    for key, value in variables.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


def _run(shown: Shown, name: str, modules: list[str], known_gaps: str | None) -> Report:
    import pytest

    with tempfile.TemporaryDirectory(prefix="hal-check-") as folder:
        ini = Path(folder, "pytest.ini")
        ini.write_text("[pytest]\n", encoding="utf-8")
        arguments = ["-c", str(ini), "--rootdir", folder, "--basetemp", str(Path(folder, "tests"))]
        arguments += ["-p", "no:cacheprovider", "-p", "no:terminal", "--noconftest"]
        # Under python -O the asserts of the kit hold too: pytest makes plain ifs of them.
        ignored = "ignore:assertions not in test modules:pytest.PytestConfigWarning"
        arguments += ["-W", "error", "-W", ignored]
        arguments += ["-p", "hal_core.testing.plugin", "--hal-device", name, "--pyargs", *modules]
        if known_gaps is not None:
            arguments += ["--hal-known-gaps", str(Path(known_gaps).absolute())]
        said = io.StringIO()  # of pytest itself, about its arguments
        with shown.running(name), redirect_stderr(said):
            code = pytest.main(arguments, plugins=[shown])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return shown.report(name)
    problems = [*shown.problems, said.getvalue().strip().removeprefix("ERROR: ")]
    if code is pytest.ExitCode.INTERRUPTED and not any(problems):
        raise KeyboardInterrupt
    raise InvalidState("check", "the kit did not run: " + "\n".join(filter(None, problems)))

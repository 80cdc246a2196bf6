"""Run the conformance kit in this process and print the result in a few lines: `hal check`."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hal_core.compiler.selection import select
from hal_core.device import Device
from hal_core.errors import DeviceUnavailable, InvalidArgument, InvalidState

if TYPE_CHECKING:
    from hal_testing.kit.report import Report
    from hal_testing.kit.show import Shown

# Variables that configure the caller's own pytest runs, not this one.
_PYTEST_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")


class Wanted(NamedTuple):
    """A device, the tests to run on it, and the reports to write."""

    device: str
    pair: str | None = None  # a compiler pair of the device; None: the one it selects
    chapters: Sequence[str] = ()  # empty: all
    known_gaps: str | None = None  # a file
    reports: Sequence[str] = ()  # files to write
    require_device: bool = False


def check(wanted: Wanted) -> int:
    """Check a device and return the exit code: 1 when it does not conform, else 0.

    A device that is absent gives 0 too, unless `require_device` is set.

    Raises: InvalidArgument, UnknownDevice, CompilerUnavailable for a pair that is not installed,
    any error of opening the device, and InvalidState when pytest did not finish.
    """
    with suppress(DeviceUnavailable):  # whatever it then needs, a name that is wrong is told first
        Device.info(wanted.device)
    import pytest

    from hal_testing.kit.abilities import text_language
    from hal_testing.kit.report import KIT, chapters, check_suffix
    from hal_testing.kit.show import Shown

    for path in wanted.reports:
        check_suffix(Path(path))
    known = chapters()
    for chapter in wanted.chapters:
        if chapter.lower() not in known:
            fix = f"There are {', '.join(known)}."
            raise InvalidArgument("check", "no such chapter", got=chapter, fix=fix)
    modules = [f"{KIT}.test_{chapter.lower()}" for chapter in wanted.chapters or known]
    shown = Shown()
    try:
        name = Device.info(wanted.device).name
        with pytest.MonkeyPatch.context() as environment:
            for variable in _PYTEST_VARIABLES:
                environment.delenv(variable, raising=False)
            environment.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            if wanted.pair is not None:
                environment.setenv(f"{name.partition(':')[0]}_CC", wanted.pair)
            opened = Device[name]
            select(opened, text_language(opened))  # an error is raised here, not in every test
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


def _run(shown: Shown, name: str, modules: list[str], known_gaps: str | None) -> Report:
    import pytest

    with tempfile.TemporaryDirectory(prefix="hal-check-") as folder:
        # An ini file of its own, or pytest would search the user's folders for one.
        ini = Path(folder, "pytest.ini")
        ini.write_text("[pytest]\n", encoding="utf-8")
        arguments = ["-c", str(ini), "--rootdir", folder, "--basetemp", str(Path(folder, "tests"))]
        arguments += ["-p", "no:cacheprovider", "-p", "no:terminal", "--noconftest"]
        # Under python -O the asserts of the kit hold too, as pytest rewrites them to plain ifs;
        # its warning is about asserts elsewhere.
        ignored = "ignore:assertions not in test modules:pytest.PytestConfigWarning"
        arguments += ["-W", "error", "-W", ignored]
        arguments += ["-p", "hal_testing.plugin", "--hal-device", name, "--pyargs", *modules]
        if known_gaps is not None:
            arguments += ["--hal-known-gaps", str(Path(known_gaps).absolute())]
        said = io.StringIO()  # errors of pytest about its arguments
        with shown.running(name), redirect_stderr(said):
            code = pytest.main(arguments, plugins=[shown])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return shown.report(name)
    problems = [*shown.problems, said.getvalue().strip().removeprefix("ERROR: ")]
    if code is pytest.ExitCode.INTERRUPTED and not any(problems):
        raise KeyboardInterrupt
    raise InvalidState("check", "the kit did not run: " + "\n".join(filter(None, problems)))

"""The result of a run of the conformance kit, as Markdown for people and JSON for programs."""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hal_core as hal
from hal_core.compiler.selection import select
from hal_core.discovery import distribution_version
from hal_core.errors import HalError, InvalidArgument
from hal_core.files import save
from hal_testing.kit.abilities import text_language

KIT = "hal_testing.conformance"
SKIPPED = "skipped"
OUTCOMES = ("passed", "failed", SKIPPED, "known gap")
TEST = "hal_test"  # the property of a pytest report that holds the test's name
SUFFIXES = (".json", ".md")
_UNTRIED = re.compile("no renderer|nothing to try")


def chapters() -> list[str]:
    """Return the names of the kit's chapters, as `hal check --chapter` takes them."""
    # Listed, not imported: pytest has to import them first, to rewrite their asserts.
    package, _, folder = KIT.rpartition(".")
    names = (entry.name for entry in files(package).joinpath(folder).iterdir())
    return sorted(
        name.removeprefix("test_").removesuffix(".py")
        for name in names
        if name.startswith("test_") and name.endswith(".py")
    )


class Result(NamedTuple):
    """One test of the kit."""

    test: str  # TestBuffer::test_B1_...
    outcome: str  # one of OUTCOMES
    seconds: float
    why: str = ""  # the reason of a failure, a skip or a known gap

    @property
    def chapter(self) -> str:
        return self.test.partition("::")[0].removeprefix("Test")


class Report(NamedTuple):
    """The results of one run, and facts: versions, platform, the device and its compiler."""

    device: str
    facts: dict[str, Any]
    results: tuple[Result, ...]
    seconds: float

    def of(self, outcome: str) -> list[Result]:
        return [result for result in self.results if result.outcome == outcome]

    @property
    def has_passed(self) -> bool:
        """True if some tests have passed and none has failed."""
        return bool(self.of("passed")) and not self.of("failed")

    @property
    def not_run(self) -> list[str]:
        """Chapters of the kit that were left out."""
        return sorted(set(chapters()) - {result.chapter.lower() for result in self.results})

    @property
    def conforms(self) -> bool:
        return self.has_passed and not self.not_run

    @property
    def verdict(self) -> str:
        passed, failed, gaps = (len(self.of(outcome)) for outcome in OUTCOMES if outcome != SKIPPED)
        # Texts of the author would run these; of the rest a device may lack all, such as images.
        untried = {one.chapter for one in self.of(SKIPPED) if _UNTRIED.search(one.why)}
        untried -= {one.chapter for one in self.of("passed")}
        if failed:
            said = f"does not conform: {failed} of {failed + passed} tests fail"
        elif not passed:
            said = "does not conform: nothing passed"
        elif self.not_run:
            said = f"passes the {passed} tests of {', '.join(self.chapters())}"
        elif untried:
            idle = ", ".join(sorted(untried))
            said = f"passes the {passed} tests that ran; nothing of {idle} did"
        else:
            said = f"conforms: {passed} tests pass"
        return (
            f"{self.device} {said}{f', {gaps} known gaps' * (gaps > 0)}, in {self.seconds:.0f} s."
        )

    def chapters(self) -> dict[str, dict[str, float]]:
        """Return for each chapter the number of tests with each outcome, and the seconds."""
        table: dict[str, dict[str, float]] = {}
        for result in sorted(self.results, key=lambda one: one.chapter):
            row = table.setdefault(result.chapter, {**dict.fromkeys(OUTCOMES, 0), "seconds": 0.0})
            row[result.outcome] += 1
            row["seconds"] += result.seconds
        return table

    def reasons(self, outcome: str) -> dict[str, list[str]]:
        """Return the reasons of an outcome, and for each of them the names of its tests."""
        found: dict[str, list[str]] = {}
        for result in self.of(outcome):
            found.setdefault(result.why, []).append(result.test)
        return found

    def to_json(self) -> str:
        tests = {
            outcome.replace(" ", "_"): [
                {"test": one.test, "why": one.why} for one in self.of(outcome)
            ]
            for outcome in OUTCOMES[1:]  # tests that passed are only counted
        }
        content = {
            "device": self.device, "conforms": self.conforms, "verdict": self.verdict,
            "not_run": self.not_run, "seconds": round(self.seconds, 2), **self.facts,
            "chapters": self.chapters(), **tests,
        }  # fmt: skip
        return json.dumps(content, indent=2, default=str) + "\n"

    def to_markdown(self) -> str:
        lines = ["# Conformance report", "", self.verdict, ""]
        lines += _table(("", ""), _flat(self.facts))
        head = ("chapter", *OUTCOMES, "seconds")
        lines += _table(
            head,
            [
                (name, *(f"{row[outcome]:g}" for outcome in OUTCOMES), f"{row['seconds']:.1f}")
                for name, row in self.chapters().items()
            ],
        )
        for outcome, title in (
            ("failed", "Failed"), ("known gap", "Known gaps"), ("skipped", "Skipped"),
        ):  # fmt: skip
            rows = [(f"`{one.test}`", one.why.partition("\n")[0]) for one in self.of(outcome)]
            lines += [f"## {title}", "", *_table(("test", "why"), rows)] if rows else []
        return "\n".join(lines).rstrip() + "\n"

    def write(self, path: Path) -> None:
        """Write the report. Raises: InvalidArgument for an unknown suffix, or if writing fails."""
        check_suffix(path)
        text = self.to_json() if path.suffix == ".json" else self.to_markdown()
        save("report", path, text.encode())


def check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        known = " or ".join(SUFFIXES)
        raise InvalidArgument("report", "its form is not known", got=path.name, fix=f"Use {known}.")


def _flat(facts: dict[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Return facts as rows of a table, those of a nested table with its name before theirs."""
    rows = []
    for key, value in facts.items():
        name = f"{before}{key}".replace("_", " ")
        if isinstance(value, dict):
            rows += _flat(value, f"{key} ")
        else:
            text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            rows.append((name, text))
    return rows


def _table(head: Iterable[str], rows: Iterable[tuple[str, ...]]) -> list[str]:
    cells = [tuple(head), *rows]
    # chr(92) is a backslash, which the f-strings of Python 3.11 cannot contain.
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells]
    return [lines[0], f"|{' --- |' * len(cells[0])}", *lines[1:], ""]


def facts_of(device: str) -> dict[str, Any]:
    """Return versions, platform, and the facts of the device."""
    known: dict[str, Any] = {
        "kit": ".".join(map(str, hal.API_VERSION)),
        "hal-core": hal.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    try:
        backend = hal.Device.backend(device.partition(":")[0]).distribution
        known["backend"] = (
            f"{backend} {distribution_version(backend) or ''}".strip() or "registered"
        )
        info = hal.Device.info(device)
    except HalError as error:
        return {**known, "hardware": str(error)}
    facts = {key: value for key, value in info._asdict().items() if key != "vendor"}
    facts["limits"] = info.limits._asdict()
    facts["capabilities"] = sorted(info.capabilities)
    vendor = {key: str(value)[:80] for key, value in info.vendor.items()}
    try:
        opened = hal.Device[device]
        pair = select(opened, text_language(opened))[0].name
    except HalError as error:
        pair = f"none: {error}"
    return {**known, "compiler": pair, "hardware": facts, "vendor": vendor}


class Collector:
    """A pytest plugin that collects the results of the kit's tests."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.problems: list[str] = []  # errors that prevented tests from running
        self._begun: dict[str, Result] = {}  # node -> its result after the phases until now
        self._start = time.perf_counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = str(dict(report.user_properties).get(TEST, ""))
        if not test:
            return
        so_far = self._begun.get(report.nodeid, Result(test, "passed", 0.0))
        outcome, why = _outcome(report)
        # A failure stands whatever a later phase gives, and no phase that passes changes anything.
        if so_far.outcome == "failed" or outcome == "passed":
            outcome, why = so_far.outcome, so_far.why
        now = Result(test, outcome, so_far.seconds + report.duration, why)
        self._begun[report.nodeid] = now
        if report.when == "teardown":
            self.results.append(self._begun.pop(report.nodeid))
            self.done(now)

    def done(self, result: Result) -> None:
        """Called after each test, for a subclass that shows progress."""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problems.append(f"{report.nodeid}: {report.longreprtext}")

    def pytest_internalerror(self, excrepr: object) -> None:
        self.problems.append(str(excrepr))

    def report(self, device: str) -> Report:
        seconds = time.perf_counter() - self._start
        return Report(device, facts_of(device), tuple(self.results), seconds)


def _outcome(report: pytest.TestReport) -> tuple[str, str]:
    """Return the outcome of one phase of a test, and its reason.

    A known gap that passes has failed: pytest reports a strict xfail so.
    """
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is None:
            return "failed", str(report.longrepr)
        return "failed", f"{crash.message}\n({Path(crash.path).name}:{crash.lineno})"
    if not report.skipped:
        return "passed", ""
    if hasattr(report, "wasxfail"):  # an expected failure, which pytest counts as skipped
        return "known gap", report.wasxfail.removeprefix("reason: ")
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return "skipped", reason.removeprefix("Skipped: ")

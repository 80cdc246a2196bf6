"""Show a run of `hal check`: a progress line, then a table and the failures."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import pytest
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from hal_core.cli import output
from hal_testing.kit.report import OUTCOMES, Collector, Report, Result


class Shown(Collector):
    """A pytest plugin that prints instead of pytest's own terminal plugin."""

    def __init__(self) -> None:
        super().__init__()
        # pytest redirects file descriptor 1 while tests run; a duplicate still leads to stdout.
        stream: TextIO = sys.stdout
        with suppress(OSError, ValueError, io.UnsupportedOperation):  # a stream without a file
            number = os.dup(stream.fileno())
            stream = open(number, "w", encoding=stream.encoding, errors="replace", buffering=1)  # noqa: SIM115  # lives as long as the console
        self._console = output.console(file=stream, soft_wrap=True)
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def line(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style)

    # -- while it runs

    @contextmanager
    def running(self, device: str) -> Iterator[None]:
        columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
        # Refreshed by hand, not by a thread: tests fork, and a child would inherit its locks.
        self._progress = Progress(
            *columns, console=self._console, transient=True, auto_refresh=False,
            redirect_stdout=False, redirect_stderr=False, disable=not self._console.is_terminal,
        )  # fmt: skip
        with self._progress:
            self._task = self._progress.add_task(device, total=None)
            yield

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._update(total=len(session.items))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._update(description=nodeid.partition("::")[2].removeprefix("Test"))

    def done(self, result: Result) -> None:
        self._update(advance=1)
        if result.outcome == "failed" and self._console.is_terminal:
            self.line(f"failed: {result.test}", "red")

    def _update(self, **what: Any) -> None:
        if self._progress is not None:
            self._progress.update(self._task, refresh=True, **what)

    # -- afterwards

    def summary(self, report: Report) -> None:
        facts = report.facts
        title = facts["hardware"].get("title", "") if isinstance(facts["hardware"], dict) else ""
        self.line(f"{report.device} {title}, compiler {facts.get('compiler', 'none')}")
        self.line(
            f"kit {facts['kit']}, hal-core {facts['hal-core']}, {facts['backend']}, "
            f"Python {facts['python']}"
        )
        table = output.table(("chapter",), (*OUTCOMES, "seconds"))
        for name, row in report.chapters().items():
            counts = [f"{row[outcome]:g}" if row[outcome] else "-" for outcome in OUTCOMES]
            style = "red" if row["failed"] else None
            table.add_row(name, *counts, f"{row['seconds']:.1f}", style=style)
        self._console.print(table)
        for result in report.of("failed"):
            self.line(f"\nfailed: {result.test}", "red")
            self.line("\n".join(f"    {line}" for line in result.why.splitlines()))
        for outcome in ("known gap", "skipped"):
            for reason, tests in report.reasons(outcome).items():
                self.line(f"{outcome}: {len(tests)}, {reason}", "yellow")
        self.line(report.verdict, "green" if report.has_passed else "red")

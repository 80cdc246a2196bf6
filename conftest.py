"""Settings of every test run of the repository, the core's tests and the plugins'."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings

# An example may take long where other work has the processor. `nox -s full` takes more of them.
settings.register_profile("usual", deadline=None, max_examples=25)
settings.register_profile("full", deadline=None, max_examples=200)
settings.load_profile("usual")


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A run that was started in the background ignores SIGINT, and so would its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def usual_recursion_limit() -> Iterator[None]:
    """Undo what a library has set while a module ran: tests of deep expressions go by the limit."""
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)


@pytest.fixture(autouse=True, scope="module")
def cheap_collections() -> None:
    """Keep `gc.collect()` fast: it does not look again at what earlier modules made.

    After some thousand tests a process holds millions of objects, and a collection takes a second.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add to nox's list of what was left out: the packages that skipped tests ask for."""
    left_out = os.environ.get("TEST_LEFT_OUT")
    if left_out is None:
        return
    found: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = str(report.longrepr)
        found.update(set(re.findall(r"apt-get install ([\w+-]+(?:\.[\w+-]+)*)", reason)))
    with open(left_out, "a", encoding="utf-8") as file:
        file.writelines(f"{package} {count}\n" for package, count in found.items())

"""The checkout itself, with everything installed in place: what a developer runs most."""

from __future__ import annotations

from pathlib import Path

import nox

from sessions import distributions, drivers, suite, tools
from sessions.distributions import LOCAL


def test(session: nox.Session) -> None:
    """Check format, rules, and types of the core and the language; run quick or named tests."""
    if not Path(session.bin, "hal").exists():
        checkouts = [part for name in LOCAL for part in ("-e", str(distributions.folder_of(name)))]
        # What hatchling's wheels of a checkout import; uv does not see that they need it.
        session.install(*checkouts, "editables", *tools.TEST, *tools.TYPES)
    if not session.posargs:
        session.run("ruff", "format", "--check", "-q", ".")
        session.run("ruff", "check", "-q", ".")
        # The core's stub names hal_kernel, which mypy does not find as an import of a checkout.
        session.run("mypy", "hal_core", "plugins/hal-kernel/hal_kernel")
        drivers.opencl(session)
    chosen = session.posargs or ("-m", "not full", *suite.marked("quick"))
    session.run("python", "-m", "pytest", "-q", "-n", "auto", "--dist", "loadfile", *chosen)

"""Wheels of the distributions, built once in a run, and sessions that have them installed."""

from __future__ import annotations

from pathlib import Path

import nox

from sessions import one_run
from sessions.distributions import folder_of, needed


def of(session: nox.Session, *named: str) -> list[str]:
    """Return wheels of distributions and of what they need, hal-cuda's with the extra `nvrtc`.

    The first session to ask for a wheel builds it.
    """
    dist, names = one_run.folder(), needed(named)
    patterns = {name: f"{name.replace('-', '_')}-*.whl" for name in names}
    missing = [name for name, pattern in patterns.items() if not any(dist.glob(pattern))]
    if missing:
        build(session, dist, *map(folder_of, missing))
    found = {name: str(next(dist.glob(pattern))) for name, pattern in patterns.items()}
    return [path + "[nvrtc]" * (name == "hal-cuda") for name, path in found.items()]


def build(session: nox.Session, into: Path, *projects: Path) -> None:
    """Build wheels with pip, which uv's environments lack."""
    session.install("pip")
    folders = map(str, projects)
    session.run("python", "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(into), *folders)


def install(
    session: nox.Session, *names: str, tools: tuple[str, ...] = (), shown: bool = False
) -> Path:
    """Install wheels and tools in one command; prove that the checkout is not what is imported.

    The session goes on in a folder of its own, which is given back. What is installed is `shown`,
    or only errors are.
    """
    wheels = of(session, *names)
    session.install(*wheels, *tools, silent=not shown)
    if getattr(session.virtualenv, "_reused", True):
        # In a reused environment (nox -R) an installer leaves a wheel of the same version as it is.
        session.install("--force-reinstall", "--no-deps", *wheels)
    folder = Path(session.create_tmp()).resolve()
    session.chdir(folder)
    session.run(
        *("python", "-c"),
        "import hal_core, sys; where = hal_core.__file__; print(where); "
        "sys.exit('the checkout is imported' if 'site-packages' not in where else 0)",
    )
    return folder

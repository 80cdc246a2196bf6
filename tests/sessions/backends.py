"""The tests of backends: one without the others, all in short, and each in its special places."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import nox

from sessions import drivers, kit, one_run, suite, tools, wheels
from sessions.distributions import LOCAL, OUT, ROOT
from sessions.pythons import FULL

# For the Arm processor, without what would be slow to install there.
_ARM_TOOLS = ("pytest>=8.2", "pytest-timeout>=2.3", "hypothesis>=6.100", "ml_dtypes>=0.5")


def test_one(session: nox.Session, backend: str) -> None:
    """Test a backend; `together` has more of CPU's and OPENCL's, under `python -O` as these."""
    wheels.install(session, "hal-testing", f"hal-{backend}", tools=tools.TEST)
    required = drivers.opencl(session) if backend == "opencl" else (backend.upper(),)
    # AMD's compiler is not on PyPI: where the system has none, its tests are skipped.
    required = () if backend == "hip" and not drivers.required("HIP") else required
    folder = f"plugins/hal-{backend}/tests"
    every = session.python == FULL and backend in ("cuda", "hip", "metal")
    own = [str(ROOT / folder)] if every else suite.marked("results", under=[folder])
    # The short ones last, for the core that is free.
    shared = suite.marked("results", under=["tests"])
    suite.run(session, *own, *shared, require=required, optimize=not every)


def test_together(
    session: nox.Session, *without: str, only: str = "not full", options: tuple[str, ...] = ()
) -> None:
    """Test everything with all backends that need no driver in software."""
    wheels.install(session, *LOCAL, tools=(*tools.TEST, *tools.TEXT, *tools.DEMO))
    required = ("CPU", *drivers.opencl(session))
    # A driver in software has GPUs that would be everybody's best devices.
    chosen = suite.every("cpu", "opencl")
    suite.run(
        session, *chosen, without=without, optimize=True, require=required, only=only,
        options=options,
    )  # fmt: skip


def test_the_rest(session: nox.Session, *without: str) -> None:
    """Run what is marked `full`, and properties on more examples; GPUs' in their own processes."""
    more = ("--hypothesis-profile=full",)
    session.install("ziglang")  # only here: it has 20,000 files
    test_together(session, *without, only="full or hypothesis", options=more)
    for name in ("cuda", "hip", "metal"):
        suite.run(session, str(ROOT / "plugins" / f"hal-{name}" / "tests"), only="full")


def test_each_in_short(session: nox.Session) -> None:
    """Test all backends but RAY from text to result, and what depends on the interpreter."""
    opencl = drivers.opencl(session)
    required = {"cuda": ["CUDA"], "hip": [], "metal": ["METAL"]}
    # In processes of their own: GPUs of a driver in software would be everybody's best devices.
    for name, families in required.items():
        own = suite.marked("results", under=[f"plugins/hal-{name}"])
        suite.run(session, *own, require=families)
    own = suite.marked("results", under=["plugins/hal-cpu", "plugins/hal-opencl"])
    rest = suite.marked("syntax", "results", under=["tests"])
    suite.run(session, *rest, *own, require=("CPU", *opencl))


def test_on_clusters(session: nox.Session, path: str, *more: str) -> None:
    """Run tests of hal-ray one at a time: each starts a cluster of more than a gigabyte."""
    names = ("hal-testing", "hal-cpu", "hal-ray")
    wheels.install(session, *names, tools=(*tools.TEST, *more))
    # Ray's workers refuse a folder inside of the environment, where a session's own is.
    suite.run(
        session, str(ROOT / path), require=("RAY",), RAY_TMPDIR=str(one_run.folder()),
        only="", RAY_CHAOS_SECONDS="60", PYTEST_XDIST_AUTO_NUM_WORKERS="1",
    )  # fmt: skip


def test_through_pycuda(session: nox.Session) -> None:
    """Build PyCUDA for the driver in software, and run the kit and hal-cuda's tests through it."""
    folder = wheels.install(session, "hal-testing", "hal-cuda", tools=tools.TEST)
    env = drivers.in_software(session, "CUDA", folder)
    _build_pycuda(session, folder, driver=env["LD_LIBRARY_PATH"])
    for compiler in ("nvrtc", "ptx"):
        kit.check_cuda(session, env, "pycuda", compiler)
    own = str(ROOT / "plugins" / "hal-cuda" / "tests")
    suite.run(session, own, require=("CUDA",), HAL_CUDA_DRIVER="pycuda")


def _build_pycuda(session: nox.Session, folder: Path, driver: str) -> None:
    session.install("setuptools", "nvidia-cuda-runtime-cu12", "nvidia-cuda-profiler-api-cu12")
    include = "import pathlib, nvidia; print(*(str(p) for p in pathlib.Path("
    include += "list(nvidia.__path__)[0]).glob('cuda_*/include')))"
    folders = str(session.run("python", "-c", include, silent=True)).split()
    # Its build reads this file of the home folder; pip keeps what it builds where it always does.
    (folder / ".aksetup-defaults.py").write_text(
        f"CUDA_ENABLE_CURAND = False\nCUDA_INC_DIR = {folders!r}\nCUDADRV_LIB_DIR = "
        f"[{driver!r}]\nLDFLAGS = ['-Wl,--no-as-needed']\n",
        encoding="utf-8",
    )
    kept = str(session.run("python", "-m", "pip", "cache", "dir", silent=True)).strip()
    env = {"HOME": str(folder), "PIP_CACHE_DIR": kept}
    session.run("python", "-m", "pip", "install", "-q", "pycuda", env=env)


def test_on_arm(session: nox.Session) -> None:
    """Run the tests marked `arm` and random kernels, then the kit; or some chapters of the kit."""
    run = _arm_python(session)
    if not session.posargs:
        run("-m", "pytest", *suite.settings(ROOT), *suite.marked("arm"))
        run(str(ROOT / "tests" / "fuzz"), "--kernels", "200", "--targets", "llvm")
    OUT.mkdir(exist_ok=True)
    chapters = session.posargs or ("--chapter", *kit.CORE_CHAPTERS)
    report = ("--report", str(OUT / "conformance-aarch64.md"))
    run("-m", "hal_core", "check", "CPU", "--require-device", *report, *chapters)


def _arm_python(session: nox.Session) -> Callable[..., object]:
    """Set up an Arm processor in software, with hal-cpu; return what runs its Python."""
    session.install("pip")
    ours = wheels.of(session, "hal-testing", "hal-cpu")
    folder = Path(session.create_tmp()).resolve()
    session.chdir(folder)
    maker = ROOT / "tests" / "simulators" / "aarch64.py"
    session.run("python", str(maker), str(folder / "arm"), *ours, *_ARM_TOOLS)
    # The C compilers and tools of this machine are for another processor, but clang is for all.
    env = {"PATH": str(folder)}
    if clang := shutil.which("clang"):
        headers = "/usr/include/x86_64-linux-gnu"
        env["TEST_CC"] = f"{clang} --target=aarch64-linux-gnu -isystem {headers}"
    return functools.partial(session.run, str(folder / "arm" / "python"), external=True, env=env)

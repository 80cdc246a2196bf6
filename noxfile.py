"""A menu of every check of the repository, each in an environment of its own.

`nox` runs what a change must pass; `nox -s NAME` runs one session, `nox -l` lists them.
Sessions install wheels built from this checkout and run outside of it, so that what is tested is
what a user installs. Each selects its tests by their marks, which pyproject.toml lists.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).resolve().parent / "tests"))  # for `sessions`

from sessions import (
    archives,
    backends,
    bare_machine,
    checkout,
    code_rules,
    distributions,
    drivers,
    installer,
    kit,
    programs,
    projects,
    suite,
    tools,
    website,
    wheels,
)
from sessions.distributions import BACKENDS, LOCAL, ROOT
from sessions.pythons import FULL, OTHERS, PYTHONS, SUPPORTED

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = installer.set_up()
# One Python is enough for a user; the project's own machines must not lose one in silence.
nox.options.error_on_missing_interpreters = bool(os.environ.get("CI"))
# With FULL, `core` and `kernel` run the tests that need no backend, and a session for each backend
# those that need no other; `together` runs the rest, on all at once. `full` has what takes long
# and other Pythons. All install the wheels that `build` checked.
nox.options.sessions = (
    "build", "core", "kernel", "hip", "cuda", "metal", "opencl", "cpu", "simulators", "together",
    "lint",
)  # fmt: skip

# Folders of tests with a session of their own.
ALONE, BROWSER, SIMULATORS = (
    str(ROOT / "tests" / name) for name in ("alone", "browser", "simulators")
)

# -- the product


@nox.session
def demo(session: nox.Session) -> None:
    """Blur a photograph and find its edges, learn to read digits; on every device here."""
    programs.show(session)


@nox.session(python=FULL)
def core(session: nox.Session) -> None:
    """Test hal-core where nothing else is installed: import, list, report, text kernels."""
    wheels.install(session, "hal-core", tools=tools.TEST)
    # Ten tests, which end before two workers have started.
    options = ("--noconftest", "-o", "addopts=--import-mode=importlib -ra", "-n0")
    suite.run(session, ALONE, options=options)


@nox.session(python=FULL)
def kernel(session: nox.Session) -> None:
    """Test the core and the kernel language without a backend."""
    wheels.install(session, "hal-testing", tools=tools.TEST)
    suite.run(session, *suite.marked("alone", "partial"), optimize=True)


for _name in ("hip", "cuda", "metal", "opencl", "cpu"):
    _session = functools.partial(backends.test_one, backend=_name)
    functools.update_wrapper(_session, backends.test_one)
    _session.__doc__ = f"Test hal-{_name} without other backends."
    nox.session(name=_name, python=FULL)(_session)


@nox.session(python=PYTHONS)
@nox.parametrize("backend", BACKENDS, ids=BACKENDS)
def tests(session: nox.Session, backend: str) -> None:
    """Test the core and one backend: on one Python all tests of CUDA, HIP and METAL, else a few."""
    backends.test_one(session, backend)


@nox.session(python=FULL)
def simulators(session: nox.Session) -> None:
    """Test the drivers in software by themselves, and what renderers write on them."""
    wheels.install(session, *LOCAL, tools=tools.TEST)
    suite.run(session, SIMULATORS, require=("CUDA",))


@nox.session(python=OTHERS)
def pythons(session: nox.Session) -> None:
    """Test what depends on the interpreter, on every other Python, with all backends together."""
    wheels.install(session, *LOCAL, tools=tools.TEST)
    backends.test_each_in_short(session)


@nox.session(python=FULL, reuse_venv=True)
def quick(session: nox.Session) -> None:
    """Check rules, types and the tests that most changes break, on the checkout: a minute.

    `nox -s quick -- tests/buffer -k view` runs those tests alone, in the same environment.
    """
    checkout.test(session)


@nox.session(python=FULL)
def together(session: nox.Session) -> None:
    """Test the core, every backend and compilers from PyPI together, under `python -O`."""
    backends.test_together(session, *suite.marked("alone", "results"), ALONE, BROWSER, SIMULATORS)


@nox.session(python=FULL)
def full(session: nox.Session) -> None:
    """Test what `nox` leaves out: what takes long, more compilers, `hal new`, other Pythons."""
    backends.test_the_rest(session, ALONE, BROWSER, SIMULATORS)
    for other in ("template", *(f"pythons-{version}" for version in OTHERS)):
        session.notify(other)


@nox.session
def template(session: nox.Session) -> None:
    """Build what `hal new` writes, install it beside wheels only, and run the kit on it."""
    projects.check_new(session)


@nox.session
def broken(session: nox.Session) -> None:
    """Install broken distributions: the CPU works all the same, and `hal doctor` names each."""
    projects.check_broken(session)


@nox.session(python=SUPPORTED[0])
def lowest(session: nox.Session) -> None:
    """Test with every dependency at the lowest version that is declared, on the oldest Python."""
    constraints = distributions.lowest("hal-cpu", into=Path(session.create_tmp()))
    least = (*tools.TEST, "-c", constraints)
    wheels.install(session, "hal-testing", "hal-cpu", tools=least)
    session.run("python", "-m", "pip", "list")
    suite.run(session, *suite.marked("lowest"), require=("CPU",))


@nox.session
@nox.parametrize("pair", kit.PAIRS, ids=kit.PAIRS)
def conformance(session: nox.Session, pair: str) -> None:
    """Run the kit as users run it, with each compiler, and write a report to out/.

    `nox -s "conformance(CPU-gcc)" -- --chapter buffer view`
    """
    kit.check_pair(session, pair)


@nox.session(python=FULL)
def pycuda(session: nox.Session) -> None:
    """Build PyCUDA from its sources, without a toolkit, and test hal-cuda through it."""
    backends.test_through_pycuda(session)


@nox.session(python=FULL)
def aarch64(session: nox.Session) -> None:
    """Run hal-cpu on an Arm processor in software: loaders, the kit's core, 200 random kernels.

    Needs Debian or Ubuntu, and half an hour. `-- --chapter program` runs that part of the kit.
    """
    backends.test_on_arm(session)


@nox.session(python=FULL)
def ray(session: nox.Session) -> None:
    """Run all tests of hal-ray on clusters of this machine: the kit, faults, a minute of chaos."""
    backends.test_on_clusters(session, "plugins/hal-ray/tests", *tools.DEMO, *tools.CLUSTERS)


@nox.session(python=FULL)
def browser(session: nox.Session) -> None:
    """Open the page of a profile in a headless Chromium, and click, zoom and read it."""
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        session.skip("Chromium is not installed: apt-get install chromium")
    wheels.install(session, "hal-testing", tools=(*tools.TEST, "playwright>=1.45"))
    suite.run(session, BROWSER)


@nox.session
def outside(session: nox.Session) -> None:
    """Run the kit on a backend for an API that is not shipped, examples/wgpu-backend."""
    projects.check_wgpu(session)


@nox.session
def reikna(session: nox.Session) -> None:
    """Run grunnur's tests on OPENCL by an adapter, and those of reikna from the folders given."""
    projects.check_grunnur(session)


@nox.session
def hardware(session: nox.Session) -> None:
    """Run the kit, the examples and the benchmarks on a device of this machine: `-- CUDA`.

    Writes docs/hardware/DEVICE.md. `--into FOLDER` writes it elsewhere, `--quick` does a part.
    """
    programs.write_device_page(session)


@nox.session(python=False)
def bare(session: nox.Session) -> None:
    """Run the second command without root, OpenCL driver and compilers; a part: `-- --short`."""
    bare_machine.run(session, __file__)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Compare random kernels with the interpreter; a wrong one is made small and printed.

    `nox -s fuzz -- --kernels 10000 --targets llvm,llvm-1,llvm-4,gcc,clang,opencl,ptx,hip,msl`;
    ptx, nvrtc, hip on drivers in software; on GPUs with HAL_TEST_CUDA=system, HAL_TEST_HIP=system.
    """
    programs.compare_kernels(session)


@nox.session
def graphs(session: nox.Session) -> None:
    """Compare random sequences of work with their graphs: `nox -s graphs -- CPU --count 10000`.

    Without a device: on the CPU, and on the drivers in software with streams in an order by chance.
    """
    programs.compare_graphs(session)


@nox.session(python=FULL)
def interrupts(session: nox.Session) -> None:
    """Press Ctrl-C in all that hal does, at each of its places and at moments by chance.

    `nox -s interrupts -- CPU OPENCL PYTHON --minutes 60 --seed 3 --only graphs`
    """
    wheels.install(session, *LOCAL)
    drivers.opencl(session)
    session.run("python", str(ROOT / "tests" / "interrupts"), *session.posargs)


# -- the code


@nox.session(python=FULL)
def lint(session: nox.Session) -> None:
    """Check format, rules, links of pages, and types: strict on the code, and what users copy."""
    code_rules.check(session)


@nox.session(python=FULL)
def types(session: nox.Session) -> None:
    """Check types for every supported Python, with the oldest and the newest numpy that it has."""
    code_rules.check_stubs(session)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speed beside its floors and beside what users would pick instead: a table and JSON.

    `nox -s bench -- --quick` is a short look, `-- --write-table` writes docs/speed-table.md.
    """
    programs.measure(session)


@nox.session
def build(session: nox.Session) -> None:
    """Build wheels and source archives, and look what is in them and what an index would show."""
    archives.build(session)


@nox.session
def site(session: nox.Session) -> None:
    """Build the site of all pages into out/site; a link that leads nowhere is an error."""
    website.build(session)

"""`import hal_core`: what it loads, what it costs, what it offers."""

import subprocess
import sys
from pathlib import Path

import pytest
from run_python import printed

import hal_core as hal
from hal_kernel import errors as kernel_errors

pytestmark = [pytest.mark.alone, pytest.mark.syntax, pytest.mark.quick]

FORBIDDEN = (
    "pluggy", "numpy", "importlib.metadata", "importlib_metadata", "dataclasses", "typing", "enum",
    "inspect", "logging", "re", "pathlib", "functools", "collections", "contextlib", "threading",
    "subprocess", "json", "platformdirs", "rich",
)  # fmt: skip

LOADED = """
import sys
before = set(sys.modules)
import hal_core
print(*sorted(set(sys.modules) - before))
"""


def test_R7_import_loads_two_modules(site):
    site.backend("BAD", "raise SystemExit('touched')")
    done = site.run(LOADED, "-I")
    assert done.stderr == ""
    loaded = set(done.stdout.split())
    ours = {name for name in loaded if name.startswith("hal_core")}
    assert ours == {"hal_core", "hal_core.discovery"}
    assert not loaded & set(FORBIDDEN)
    assert loaded - ours <= {"__future__"}


def test_R7_import_survives_whatever_is_installed(site):
    site.backend("EXIT", "import os; os._exit(3)")
    site.backend("WATCH", "import os; os._exit(3)", group="hal.extensions")
    site.distribution("one", b"[hal.devices]\nbroken \xff\n")
    site.distribution("two", b"\xff\xfe\0[hal.devices]")
    site.distribution("three", "[hal.devices]\nGPU = \n = x\n")
    done = site.run("import hal_core; print(hal_core.__version__)", fresh=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, hal.__version__ + "\n", "")


def test_X4_import_and_listing_without_a_home(site):
    site.backend("ACC")
    code = "import hal_core as hal; print(list(hal.Device), hal.Device['ACC:1'].name)"
    done = site.run(code, "-I", env={"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "['ACC'] ACC:1\n", "")


def test_X4_listing_in_an_isolated_interpreter(site):
    site.backend("ACC")
    code = """
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    text = f"import sys; sys.path[:] = {sys.path!r}; import hal_core; print(list(hal_core.Device))"
    interpreters.run_string(interpreters.create(), text)
    """
    assert site.run(code, "-W", "ignore").stdout == "['ACC']\n"


def test_every_public_name_is_there():
    assert set(hal.__all__) <= set(dir(hal))
    assert [name for name in hal.__all__ if getattr(hal, name) is None] == []


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hal.nothing


CTRL_C = """
import sys

def imported():
    import hal_core as hal
    return list(hal.Device), [getattr(hal, name).__name__ for name in ("Buffer", "Graph", "cache")]

def trace(frame, event, argument):
    global left
    if "hal_core" in frame.f_code.co_filename:
        left -= event == "line"
        if not left:
            raise KeyboardInterrupt
        return trace

whole, heard = imported(), 0
for line in range(1, 5000, 300):
    for name in [name for name in sys.modules if name.partition(".")[0] == "hal_core"]:
        del sys.modules[name]
    left = line
    sys.settrace(trace)
    try:
        imported()
    except KeyboardInterrupt:
        heard += 1
    finally:
        sys.settrace(None)
    if imported() != whole:
        print(line, imported(), whole)
print(heard)
"""


def test_an_import_that_ctrl_c_ended_is_done_by_the_next():
    assert int(printed(CTRL_C)) > 10


def test_every_error_is_public():
    kinds = [
        name
        for name, value in (vars(hal.errors) | vars(kernel_errors)).items()
        if isinstance(value, type) and issubclass(value, hal.HalError)
    ]
    assert set(kinds) <= set(hal.__all__) and len(kinds) == 20


def test_plain_python_is_enough_to_import():
    """No dependency of any kind is needed for the import itself."""
    where = str(Path(str(hal.__file__)).parents[1])
    code = f"import sys; sys.path = [p for p in sys.path if 'site-packages' not in p]\n"\
           f"sys.path.append({where!r})\nimport hal_core"  # fmt: skip
    subprocess.run([sys.executable, "-I", "-S", "-W", "error", "-c", code], check=True)

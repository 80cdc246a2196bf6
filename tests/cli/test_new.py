"""Test `hal new`: its names, its files, and that they are a working backend."""

import ast
import os
import re
import tomllib
from pathlib import Path

import pytest
from fake_site import FakeSite
from forked import collected_kit
from hypothesis import given, settings
from hypothesis import strategies as st

import hal_core as hal
from hal_core.cli import main
from hal_testing.cli import new

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
words = st.text(LETTERS + "0123456789", min_size=1, max_size=8)
spelled = st.builds("{}{}".format, st.sampled_from(LETTERS), st.lists(words).map("_".join))


both = pytest.mark.parametrize("text", [False, True], ids=["rendered", "text"])


def written(name, into, *, text=False):
    return Path(new.write(new.names_of(name), str(into), text=text))


@pytest.mark.parametrize(
    ("name", "family", "spelling", "package", "distribution"),
    [("NPU2", "NPU2", "NPU2", "hal_npu2", "hal-npu2"),
     ("npu2x", "NPU2X", "Npu2x", "hal_npu2x", "hal-npu2x"),
     ("my_chip", "MY_CHIP", "MyChip", "hal_my_chip", "hal-my-chip"),
     ("MyChip", "MYCHIP", "MyChip", "hal_mychip", "hal-mychip"),
     ("OpenCL_2", "OPENCL_2", "OpenCL2", "hal_opencl_2", "hal-opencl-2"),
     ("Fakery", "FAKERY", "Fakery", "hal_fakery", "hal-fakery")],
)  # fmt: skip
def test_one_name_gives_the_others(name, family, spelling, package, distribution):
    called = new.names_of(name)
    assert called == (family, spelling, package) and called.distribution == distribution


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("GPU", "request"), ("gpu", "request"), ("Default", "request"), ("core", "hal_core"),
        ("Kernel", "hal_kernel"), ("streams", "hal_streams"), ("TESTING", "hal_testing"),
        ("LRU", "LRUAllocator"), *(
            (name, "letters") for name in (
                "", "2NPU", "_npu", "npu_", "n__pu", "my-chip", "my chip", "NPU:1", "a.b", "../x",
                "N\u00dc", "\uff2e\uff30", "NPU\n", "\u0662",
            )
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_a_family_is_refused(name, reason, tmp_path):
    with pytest.raises(hal.InvalidArgument, match=reason):
        new.names_of(name)
    assert main(["new", name, "--into", str(tmp_path)]) == 2
    assert not list(tmp_path.iterdir())


@settings(max_examples=10)
@given(spelled)
def test_a_name_is_refused_or_makes_sound_python(name):
    """Every file parses, hides no name of the core and contains no "Fake"."""
    try:
        called = new.names_of(name)
    except hal.InvalidArgument:
        return
    assert hal.Device.canonicalize(called.family) == called.family
    for path, text in (*new.contents(called), *new.contents(called, text=True)):
        if path.endswith(".py"):
            tree = ast.parse(text)
            compile(tree, path, "exec")
            defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("hal_core."):
                    assert not defined & {one.name for one in node.names}
        if "fake" not in name.lower():
            assert not re.search("fake", path + text, re.IGNORECASE), path


@both
def test_the_files_are_those_of_every_backend(tmp_path, text):
    folder = written("NPU2", tmp_path, text=text)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "pyproject.toml", "README.md", "LICENSE", "known-gaps.txt", ".gitignore",
        ".github/workflows/test.yml", "tests/test_conformance.py", "tests/test_npu2.py",
        *(f"hal_npu2/{name}.py" for name in (
            "__init__", "allocator", "chip", "chip_kernels", "compiler", "device", "driver",
            "program",
        )), "hal_npu2/py.typed", *["tests/conftest.py"] * text,
    }  # fmt: skip
    assert (folder / "hal_npu2/py.typed").read_bytes() == b""


@both
def test_the_project_file_says_what_it_needs(tmp_path, text):
    file = written("my_chip", tmp_path, text=text) / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    major, minor = map(int, hal.__version__.split(".")[:2])
    core = f">={major}.{minor},<{major}.{minor + 1}"
    assert project["name"] == "hal-my-chip"
    kernel = [] if text else [f"hal-kernel{core}"]
    assert project["dependencies"] == [f"hal-core{core}", *kernel]
    assert project["optional-dependencies"] == {"test": [f"hal-testing{core}", "editables"]}
    assert project["entry-points"] == {"hal.devices": {"MY_CHIP": "hal_my_chip:plugin"}}


def test_the_rules_are_those_of_this_repository():
    root = Path(__file__).resolve().parents[2]
    ours = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]
    text = dict(new.contents(new.names_of("NPU2")))["pyproject.toml"]
    theirs = tomllib.loads(text)["tool"]["ruff"]
    assert theirs["line-length"] == ours["line-length"]
    assert theirs["lint"]["select"] == ours["lint"]["select"]


# -- what is on the disk already


def test_a_folder_that_is_there_is_never_touched(tmp_path):
    for there in ("hal-npu2", "hal-empty"):
        (tmp_path / there).mkdir()
    (tmp_path / "hal-file").write_text("mine")
    (tmp_path / "hal-npu2" / "mine").write_text("mine")
    for name in ("NPU2", "EMPTY", "FILE"):
        with pytest.raises(hal.InvalidArgument, match="is there already.*--into"):
            written(name, tmp_path)
    assert [path.name for path in (tmp_path / "hal-npu2").iterdir()] == ["mine"]
    assert not list((tmp_path / "hal-empty").iterdir())
    assert (tmp_path / "hal-file").read_text() == "mine"


def test_half_a_distribution_is_taken_away(tmp_path, monkeypatch):
    def full(path, exist_ok):
        if path != str(tmp_path):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "makedirs", full)
    with pytest.raises(hal.InvalidArgument, match="No space left"):
        written("NPU2", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_place_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(hal.InvalidArgument):
        written("NPU2", tmp_path / "file")
    assert written("NPU2", tmp_path / "a" / "b").is_dir()


# -- the command


def test_the_command_says_what_to_do_next(tmp_path, capsys):
    assert main(["new", "my_chip", "--into", str(tmp_path / "my work")]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    for part in (
        f"cd '{tmp_path}/my work/hal-my-chip'", 'pip install -e ".[test]"', "hal check MY_CHIP",
        "MyChip", "writing-a-backend.md",
    ):  # fmt: skip
        assert part in said.out


def test_a_family_that_others_provide_is_refused(tmp_path):
    site = FakeSite(tmp_path / "site")
    site.backend("NPU2", distribution="others_npu")
    site.distribution("hal_testing", "[hal.commands]\nnew = hal_testing.cli.new\n")
    for name, owner in (("OpenCL", "hal-opencl"), ("npu2", "others-npu")):
        code = f"from hal_core.cli import main; sys.exit(main(['new', {name!r}]))"
        done = site.run(code)
        assert done.returncode == 2 and f"new backend: {owner} provides this family" in done.stderr


def test_a_long_name_is_said(tmp_path, capsys):
    assert main(["new", "Acceleratrix", "--into", str(tmp_path)]) == 0
    assert "ruff format" in capsys.readouterr().err


# -- what it wrote works


def installed(into, *, text=False):
    """Write a distribution with metadata, as if it were installed."""
    folder = written("NPU2", into, text=text)
    site = FakeSite(folder)
    site.distribution("hal_npu2", "[hal.devices]\nNPU2 = hal_npu2:plugin\n", version="0.1.0")
    return folder


@both
def test_doctor_finds_it_sound(tmp_path, text):
    code = "import sys; from hal_core.cli import main; sys.exit(main(['doctor', '--json']))"
    env = {"HAL_CACHE_DIR": str(tmp_path / "cache"), "NPU2_CC": "text" if text else "listing"}
    done = FakeSite(installed(tmp_path, text=text)).run(code, env=env)
    assert done.returncode == 0, done.stdout
    assert '"name": "NPU2"' in done.stdout and '"state": "ready"' in done.stdout


# -- a backend that takes text alone


def test_a_backend_of_text_works_without_hal_kernel(tmp_path):
    code = """
import sys
sys.modules["hal_kernel"] = sys.modules["hal_testing"] = None  # importing them is an error
import hal_core as hal
text = "def triple(index, y, n):\\n    if index[0] < n: y[index[0]] *= 3\\n"
with hal.Device["NPU2"] as device:
    triple = device.compile(hal.Source("triple", text, "y: int16*, n: int32", language="python"))
    y = hal.empty(5, hal.int16, device).fill(1)
    triple(y, vals=(4,), threads=4, block=3)
    print(y.numpy().tolist())
    text = text.replace("n:", "hal:")
    triple = device.compile(hal.Source("triple", text, "y: int16*, n: int32", language="python"))
    triple(y, vals=(4,), threads=4)
    try:
        device.synchronize()
    except hal.DeviceFault as error:
        print(error)
"""
    env = {"HAL_CACHE_DIR": str(tmp_path / "cache")}
    done = FakeSite(installed(tmp_path, text=True)).run(code, env=env, fresh=True)
    assert done.returncode == 0, done.stderr
    results, error = done.stdout.splitlines()
    assert results == "[3, 3, 3, 3, 1]"
    assert "triple" in error and "name 'hal' is not defined" in error


@pytest.fixture(scope="module")
def programs():
    with collected_kit(optimize="") as made:
        yield made


@pytest.fixture
def kit(programs):
    """Run the tests of a project; return what pytest prints."""

    def run(project, *arguments):
        given = ["-q", "-p", "no:cacheprovider", "--hal-require-device", *arguments]
        text = f"""
import hal_core
os.chdir({str(project)!r})
sys.path.insert(0, os.getcwd())
hal_core.discovery.rescan()
sys.exit(pytest.main({given}))
"""
        variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(project)}
        done = programs.run(text, **variables)
        return done.stdout + done.stderr

    return run


@pytest.mark.full
def test_the_kit_passes_on_a_backend_of_text_and_skips_what_is_rendered(kit, tmp_path):
    said = kit(installed(tmp_path, text=True))
    found = re.search(r"^(\d+) passed, \d+ skipped in", said, re.MULTILINE)
    assert found is not None and int(found[1]) > 140, said[-4000:]
    # Kernels as text are compiled and launched.
    assert not re.search(r"nothing to try: override the fixture hal_source", said), said


def test_hal_check_runs_on_a_backend_of_text(tmp_path):
    """With the compiler that is named, and with the only one."""
    code = """
import sys
from hal_testing.kit.check import Wanted, check
sys.exit(check(Wanted("NPU2", None, ["view"])) or check(Wanted("NPU2", "text", ["view"])))
"""
    done = FakeSite(installed(tmp_path, text=True)).run(code, fresh=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("compiler text") == done.stdout.count("takes text alone") == 2


# The run of a file's faults, what is changed, and the test of the kit that fails. A row of one run
# leaves the tests of the others whole.
FAULTS = [
    (0, "compiler", 'CompilerPair("text", NPU2Compiler.language', 'CompilerPair("text", "pyton"',
     "P1_the_named_entry"),
    (1, "compiler", "raise CompileError", "raise CompilerUnavailable", "C5_a_fault"),
    (1, "chip_kernels", "_function((x, y", "_function((x + 1, y", "V3_sources_take_views"),
    (2, "compiler", "line=error.lineno", "line=1", "C5_a_fault"),
    (2, "chip_kernels", "names[entry]", "names.get(entry)", "C5_what_is_no_source"),
]  # fmt: skip


@pytest.mark.parametrize("run", range(3))
def test_the_kit_finds_faults_of_a_backend_of_text(kit, run, tmp_path):
    """Skip what needs a renderer, and nothing that the device itself refuses of texts."""
    project = installed(tmp_path, text=True)
    rows = [row for row in FAULTS if row[0] == run]
    for _, file, right, wrong, _ in rows:
        path = project / "hal_npu2" / f"{file}.py"
        text = path.read_text(encoding="utf-8")
        assert text.count(right) == 1
        path.write_text(text.replace(right, wrong), encoding="utf-8")
    tests = [test for *_, test in rows]
    said = kit(project, "-k", f"TestCompile and ({' or '.join(tests)})")
    for test in tests:
        assert re.search(rf"^FAILED .*{test}", said, re.MULTILINE), said[-4000:]

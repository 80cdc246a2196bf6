"""What the pages say is what happens."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from shutil import which

import numpy as np
import pytest
import run_python
from kernel_files import load
from slices import usual

import hal_core as hal
from hal_kernel.ir import uop

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]
DEVICES = [name for name in ("CPU", "OPENCL") if find_spec(f"hal_{name.lower()}") is not None]
needs_cpu = pytest.mark.skipif("CPU" not in DEVICES, reason="hal-cpu is not installed here")


def blocks(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("kind", [hal.DeviceRegistry, hal.Compiled, hal.Buffer, hal.Program])
def test_the_pages_name_what_a_user_can_call(kind):
    prose = [page for page in (ROOT / "docs").glob("*.md") if page.name != "api.md"]
    pages = "\n".join(page.read_text("utf-8") for page in prose)
    methods = {name for name, value in vars(kind).items() if name[0] != "_" and callable(value)}
    methods -= {"backend"}  # of Device: for `hal doctor` and tests
    assert methods
    assert {name for name in methods if not re.search(rf"[.`]{name}\b", pages)} == set()


def printed(code):
    """What the comments promise: behind a print, or on the line below the call that prints."""
    return re.findall(r"(?:print\(.*\)  |^)# (.*)", code, re.MULTILINE)


def run(code, path, **variables):
    """Run code as a file of its own, whose folder has the cache."""
    path.write_text(code, encoding="utf-8")
    folder = path.parent
    return run_python.run(path, cwd=folder, **{"HAL_CACHE_DIR": str(folder)} | variables)


def runs_as_promised(code, path, **variables):
    done = run(code, path, **variables)
    assert done.returncode == 0, done.stderr
    promised = printed(code)
    assert promised and done.stdout.splitlines() == promised


PAGES_THAT_RUN = (
    "kernel-language", "testing-kernels", "memory", "ir", "compilers", "queues", "graphs",
    "many-devices", "speed",
)  # fmt: skip


@needs_cpu
@pytest.mark.parametrize("page", PAGES_THAT_RUN)
def test_the_code_of_the_page_runs(page, tmp_path, monkeypatch, capfd):
    """In this process, on a device that nothing has used."""
    code, path = "\n".join(blocks(f"{page}.md")), tmp_path / "page.py"
    path.write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAL_CACHE_DIR", str(tmp_path))
    hal.Device["CPU"].close()
    run_path(str(path), run_name="__main__")
    promised = printed(code)
    assert promised and capfd.readouterr().out.splitlines() == promised


# The recipes that are functions take arrays without an element, too.
_OF_NOTHING = """
floats, ints, keys = (hal.Buffer.from_numpy(np.zeros(0, code), dev) for code in ("f4", "i4", "u4"))
assert add_all(floats) == 0 and scan(ints)[1] == 0 and sort(keys).size == 0
"""


@pytest.mark.parametrize(
    "name", usual(DEVICES, "CPU") or [pytest.param("", marks=pytest.mark.skip("no backend"))]
)
def test_the_recipes_run(name, tmp_path):
    """On each device, with the results that the page promises."""
    _opened(name)
    text = "\n".join([*blocks("recipes.md"), _OF_NOTHING])
    runs_as_promised(text, tmp_path / "page.py", HAL_DEVICE=name)


@needs_cpu
def test_the_profiling_page_prints_its_table(tmp_path):
    """The same rows, but for the times and the size of the machine code."""
    code = "\n".join(blocks("profiling.md"))
    page = (ROOT / "docs" / "profiling.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    done = run(code, tmp_path / "page.py")
    assert done.returncode == 0, done.stderr
    lines, shown = done.stdout.splitlines(), table.splitlines()

    def rows(lines):
        masked = [re.sub(r"[\d.]+ (ms|us)", "time", line).split() for line in lines]
        return [row[:-1] if row[0] == "compile" else row for row in masked]

    assert rows(lines[: len(shown)]) == rows(shown)
    assert lines[len(shown) :] == printed(code)


@needs_cpu
def test_the_ten_lines_of_the_readme_print_what_it_shows(tmp_path):
    """But for the time, and on the CPU, which is the default of no machine with a GPU."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^It prints\n\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    code = code.replace("hal.Device.DEFAULT", '"CPU"')
    done = run(code, tmp_path / "saxpy.py")
    assert done.returncode == 0, done.stderr
    printed, promised = (re.sub(r"[\d.]+ us", "time", line) for line in (done.stdout, shown))
    assert printed == promised


@needs_cpu
def test_the_tutorial_runs_and_prints_what_it_shows(tmp_path):
    """Its cells as one script, on every device here; but for times and the devices' names."""
    pytest.importorskip("PIL", reason="pillow is not installed")
    cells = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    text = "\n\n".join("".join(cell["source"]) for cell in code)
    done = run(text, tmp_path / "tutorial.py", HAL_CHECK="")
    assert done.returncode == 0, done.stderr
    promised = "".join("".join(output.get("text", [])) for output in outputs)
    printed, promised = (
        re.sub(r"\d+ us|\w+(:\d+)? agrees\n", "", text) for text in (done.stdout, promised)
    )
    assert printed == promised


@needs_cpu
def test_P9_the_wrong_kernel_of_the_page_ends_as_it_says(tmp_path):
    page = (ROOT / "docs" / "checked-mode.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = re.findall(r"^```text\n(.*?)\n```", page, re.MULTILINE | re.DOTALL)[0]
    assert len(code.splitlines()) <= 12
    done = run(code, tmp_path / "blur.py", HAL_CHECK="1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == " ".join(shown.split())


@needs_cpu
def test_the_code_of_the_page_on_checked_mode_runs(tmp_path):
    code = "\n".join(blocks("checked-mode.md"))
    if not any(map(which, ("clang", "gcc", "zig"))) and find_spec("ziglang") is None:
        pytest.skip("the page has a kernel in C, and no C compiler is installed")
    runs_as_promised(code, tmp_path / "page.py", HAL_CHECK="1")


def test_the_error_on_the_kernel_language_page_is_the_one_raised(tmp_path):
    page = (ROOT / "docs" / "kernel-language.md").read_text(encoding="utf-8")
    section = page.partition("\n## Errors\n")[2]
    (code,) = re.findall(r"^```python\n(.*?)\n\ntry:", section, re.MULTILINE | re.DOTALL)
    shown = re.findall(r"^```text\n(.*?)\n```", section, re.MULTILINE | re.DOTALL)[0]
    module = load(tmp_path, f"import hal_core as hal\n\n\n{code}\n")
    with pytest.raises(hal.KernelSyntaxError) as caught:
        module.halve.lower()
    assert str(caught.value).replace(str(module.__file__), "halve.py") == shown


@needs_cpu
def test_the_page_on_vectors_shows_the_text_of_its_kernel(tmp_path):
    """Each line of the excerpt, in order, with other names."""
    from hal_cpu.vectors import LLVMRenderer

    page = (ROOT / "docs/design/vectors.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```llvm\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    kernel = load(tmp_path, "".join(blocks("design/vectors.md"))).second
    text = LLVMRenderer().render(kernel.lower())
    lines = iter(re.sub(r"%[\w.]+", "%", line) for line in text.splitlines() if "%" in line)
    for line in re.sub(r"%[\w.]+", "%", shown).splitlines():
        assert "%" not in line or line in lines, line


PAGES = [
    f"docs/{name}.md"
    for name in (
        "kernel-language", "coming-from", "testing-kernels", "profiling", "memory", "ir",
        "source-kernels", "checked-mode", "concepts", "api", "recipes", "speed", "design/vectors",
    )
]  # fmt: skip


@needs_cpu
def test_the_test_of_the_testing_page_passes(tmp_path):
    """And fails for another kernel."""
    code = "\n".join(blocks("testing-kernels.md"))
    differs = code.replace("x[i] + y[i]", "hal.float32(hal.block_dim(0))")  # on each device
    for text, name in ((code, "test_right.py"), (differs, "test_wrong.py")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-k", "CPU"],
        env=os.environ | {"HAL_CACHE_DIR": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = set(re.findall(r"^([A-Z]+) (test_\w+)\.py", done.stdout, re.MULTILINE))
    found.discard(("PASSED", "test_wrong"))  # one element is right by chance
    assert found == {("PASSED", "test_right"), ("FAILED", "test_wrong")}, done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_what_a_page_names_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    groups = {"devices", "extensions"}  # hal.devices is an entry-point group
    names = set(re.findall(r"\bhal\.([A-Za-z_]\w*)", text)) - groups
    assert names and not [name for name in sorted(names) if not hasattr(hal, name)]
    for module, name in re.findall(r"\b(hal_core(?:\.\w+)*)\.(\w+)\b(?!/)", text):
        known = hasattr(import_module(module), name) or find_spec(f"{module}.{name}")
        assert known, f"{module}.{name}"


def test_items_of_lists_begin_on_lines_of_their_own():
    """A page whose lines were joined and broken anew shows them as one item."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/README.md")]
    joined = re.compile(r"^[^|\n]*[.,:;] \* [\w*`].*", re.MULTILINE)
    found = [line for page in pages for line in joined.findall(page.read_text(encoding="utf-8"))]
    assert pages and not found


def test_the_page_on_ir_lists_every_node_as_the_core_does():
    page = (ROOT / "docs" / "ir.md").read_text(encoding="utf-8")
    rows = [line for line in (uop.__doc__ or "").splitlines() if line.startswith("| ")]
    assert [line for line in page.splitlines() if line.startswith("| ")] == rows
    for title, names in (
        ("Unary", uop.UNARY), ("Binary", uop.BINARY), ("Comparisons", uop.COMPARISON),
        ("SPECIALS are", uop.SPECIALS + uop.SUBGROUP),
    ):  # fmt: skip
        (listed,) = re.findall(rf"{title}:? ([^.]*)\.", page)
        assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(names)


def test_the_page_on_memory_lists_every_option():
    page = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
    listed = re.findall(
        r"^\| `(\w+)` \|", page.partition("## How it is allocated")[2], re.MULTILINE
    )
    assert sorted(listed) == sorted(hal.BufferSpec._fields)


def test_the_source_kernels_of_the_page_run(device):
    code = {}
    exec("\n".join(blocks("source-kernels.md")), code)
    source = {"CPU": code["scale_on_cpu"], "OPENCL": code["scale"]}[device.family]
    try:
        assert np.array_equal(code["launch"](device, source), 2 * np.arange(1000, dtype="f4"))
        if device.family == "OPENCL":
            with_offsets = code["launch"](device, code["scale_any"])
            assert np.array_equal(with_offsets, 2 * np.arange(1000, dtype="f4"))
    except hal.CompilerUnavailable as error:
        pytest.skip(str(error))
    broken = hal.Source("k", "void k() { @ }", "", language=source.language)
    with pytest.raises(hal.CompileError, match="@"):
        device.compile(broken)
    with pytest.raises(hal.CompilerUnavailable, match=f"It takes .*{source.language}"):
        device.compile(hal.Source("k", "", "", language="cobol"))


def _opened(name):
    try:
        return hal.Device[name]
    except hal.DeviceUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(params=DEVICES or [pytest.param("", marks=pytest.mark.skip("no backend here"))])
def device(request):
    return _opened(request.param)

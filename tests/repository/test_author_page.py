"""docs/writing-a-backend.md, followed to the letter: its backend passes the kit."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from fake_site import FakeSite

import hal_core as hal
from hal_core import cli, hookspecs
from hal_core.allocator import Allocator
from hal_core.device.base import CAPABILITIES, DeviceInfo, Limits
from hal_kernel.render import RENDERERS
from hal_testing.cli import new

ROOT = Path(__file__).resolve().parents[2]
TESTING = ROOT / "plugins" / "hal-testing" / "hal_testing"
PAGE = (ROOT / "docs" / "writing-a-backend.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def files():
    """The page's Python, each block behind those before of the file that its first line names."""
    found = {}
    for block in blocks("python"):
        head, _, code = block.partition("\n")
        assert re.fullmatch(r"# [\w/]+\.py", head), f"a block of no file: {head}"
        found.setdefault(head[2:], []).append(code)
    return {path: "\n\n".join(parts) for path, parts in found.items()}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """What `hal new` writes, the page's files in the place of its own, and its metadata, as
    installed."""
    folder = Path(new.write(new.names_of("NPU2"), str(tmp_path_factory.mktemp("author"))))
    for path, text in files().items():
        (folder / path).write_text(text, encoding="utf-8")
    for name in ("chip.py", "chip_kernels.py"):
        (folder / "hal_npu2" / name).unlink()
    (folder / "tests" / "test_npu2.py").unlink()  # of the chip
    site = FakeSite(folder)
    site.distribution("hal_npu2", "[hal.devices]\nNPU2 = hal_npu2:plugin\n", version="0.1.0")
    return folder


def run(project, code, **env):
    done = FakeSite(project).run(code, env={"HAL_CACHE_DIR": str(project / "cache"), **env})
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.full
def test_the_backend_of_the_page_passes_the_kit(project):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hal-require-device"],
        cwd=project, env=os.environ | {"PYTHONPATH": str(project), "PYTHONOPTIMIZE": ""},
        capture_output=True, text=True,
    )  # fmt: skip  # pytest would warn of -O, and warnings are errors there
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert re.search(r"\d\d passed", done.stdout)


def test_its_files_are_those_that_hal_new_writes(project):
    extra = {"hal_npu2/language.py", "npu2_tools.py"}
    theirs = {path for path, _ in new.contents(new.names_of("NPU2"))}
    assert files().keys() - theirs == extra


def test_doctor_finds_it_sound(project):
    said = run(project, "from hal_core.cli import main; sys.exit(main(['doctor', '--json']))")
    (found,) = (one for one in json.loads(said) if one["name"] == "NPU2")
    assert found["state"] == "ready"
    assert [check["ok"] for check in found["checks"] if check["title"] == "the C library"] == [True]


def test_the_commands_of_the_first_steps_pass(tmp_path):
    folder = Path(new.write(new.names_of("NPU2"), str(tmp_path)))
    site = FakeSite(folder)
    site.distribution("hal_npu2", "[hal.devices]\nNPU2 = hal_npu2:plugin\n", version="0.1.0")
    for step in "12":
        ((written, commands),) = re.findall(rf"^\| {step} \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+\.py)`", written):
            (folder / "hal_npu2" / name).write_text(files()[f"hal_npu2/{name}"], encoding="utf-8")
        for command in re.findall(r"`([^`]*)`", commands):
            if command.startswith("python -c "):
                run(folder, command.removeprefix("python -c ").strip('"'))
                continue
            code = f"from hal_core.cli import main; sys.exit(main({command.split()[1:]}))"
            said = run(folder, code, HAL_PLUGINS="NPU2")
            assert "The C library" in said and "broken" not in said


def test_the_row_of_the_page_writes_its_language(project):
    (project / "kernels.py").write_text(
        "import hal_core as hal\n"
        "@hal.kernel(block=(64, 1, 1))\n"
        "def turn(y: hal.Ptr[hal.float32], a: hal.float32):\n"
        "    tile = hal.shared(hal.float32, (64,))\n"
        "    i = hal.thread_idx(0)\n"
        "    tile[i] = a * y[hal.global_idx(0)]\n"
        "    hal.barrier()\n"
        "    y[hal.global_idx(0)] = tile[63 - i]\n"
    )
    code = """
        from kernels import turn
        from hal_npu2.language import NPU2Renderer
        print(NPU2Renderer().render(turn.lower()))
    """
    text = run(project, code)
    assert "npu_kernel void turn(__global float *y, float a) {" in text
    assert "npu_sync();" in text and "offset" not in text and "barrier(" not in text


ONE = """
import hal_core as hal
@hal.kernel
def one(y: hal.Ptr[hal.int32]):
    y[0] = 1
"""

TOOLS = """
import hal_core as hal, npu2_tools
from one import one
with hal.Device["NPU2"] as device:
    y = hal.zeros(1, hal.int32, device)
    program = device.compile(one)
    program(y, threads=1)
    print(y.numpy()[0], program.pair, "|".join(npu2_tools.seen))
"""


def test_the_extension_of_the_page_compiles_and_watches(project):
    site = FakeSite(project)
    site.module("one", ONE)
    site.distribution("npu2_tools", "[hal.extensions]\nnpu2-tools = npu2_tools:plugin\n")
    expected = "1 loud opened NPU2|compiling one|one by loud, cached: False\n"
    assert run(project, TOOLS, NPU2_CC="loud") == expected
    assert run(project, TOOLS) == "1 listing opened NPU2|one by listing, cached: False\n"


# -- what the page names


def test_the_commands_of_the_page_are_commands(capsys):
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    lines += re.findall(r"`(hal [^`]*)`", PAGE)
    ours = [line.split()[1:] for line in lines if line.startswith("hal ")]
    assert len(ours) > 5
    for arguments in ours:
        if len(arguments) > 1:
            cli.make_parser().parse_args(arguments)
        else:
            with pytest.raises(SystemExit) as done:
                cli.make_parser().parse_args([*arguments, "--help"])
            assert done.value.code == 0
    assert capsys.readouterr().err == ""


def test_the_toml_of_the_page_is_what_hal_new_writes():
    written = dict(new.contents(new.names_of("NPU2")))["pyproject.toml"]
    devices, extensions = (tomllib.loads(block)["project"] for block in blocks("toml"))
    assert devices["entry-points"] == tomllib.loads(written)["project"]["entry-points"]
    assert list(extensions["entry-points"]) == ["hal.extensions"]


def table(*firsts):
    """What stands in the first column of the tables whose heading's first cell is one of these."""
    found = set()
    inside = False
    for line in PAGE.splitlines():
        cell = line.strip("| ").partition(" |")[0]
        inside = line.lstrip().startswith("|") and (inside or cell in firsts)
        if inside and cell.startswith("`"):
            found |= set(re.findall(r"`([\w.]+)`", cell))
    return found


def to_fill_in():
    """The methods of the base classes that are a backend's."""
    found = set()
    files = (
        "device/base.py",
        "queue/base.py",
        *(f"{noun}/__init__.py" for noun in ("allocator", "program", "compiler")),
    )
    for name in files:
        text = (ROOT / "hal_core" / name).read_text(encoding="utf-8")
        part = text.partition("# -- what a backend fills in\n")[2].partition("    # -- ")[0]
        found |= set(re.findall(r"^    def (_[a-z]\w*)", part or text, re.MULTILINE))
    return found - {"_missing"}


def test_tables_name_every_method_and_hook():
    assert table("method") == to_fill_in() | {"__init__"}
    hooks = {name for name in vars(hookspecs) if name.startswith("hal_")}
    assert table("hook") == hooks - set(hookspecs.OBSERVERS)
    for observer in hookspecs.OBSERVERS:
        assert observer in PAGE


def test_every_setting_of_an_allocator_is_explained():
    settings = Allocator.__annotations__.keys() - {"device"}
    assert len(settings) > 5 and not [name for name in settings if f"`{name}" not in PAGE]


def test_tables_name_every_fact_and_capability():
    named = {name.removeprefix("limits.") for name in table("field")}
    assert named == set(Limits._fields) | set(DeviceInfo._fields) - {"limits"}
    assert table("capability") == CAPABILITIES


def test_tables_name_every_fixture_to_override():
    text = (TESTING / "plugin.py").read_text(encoding="utf-8")
    given = set(re.findall(r"^def (hal_\w+)\(device: ", text, re.MULTILINE))
    assert table("fixture") == given and len(given) > 2


def test_every_renderer_is_offered():
    for renderer in RENDERERS.values():
        assert f"`{renderer.__name__}`" in PAGE and f"`{renderer.language}`" in PAGE


def test_the_errors_of_the_page_exist():
    names = set(re.findall(r"`([A-Z]\w+(?:Error|Argument|State|Unavailable|Fault|Memory))`", PAGE))
    assert len(names) > 8
    for name in names:
        assert issubclass(getattr(hal, name), hal.HalError)


def test_the_promises_of_the_page_are_tests_of_the_kit():
    folder = TESTING / "conformance"
    kit = "".join(path.read_text(encoding="utf-8") for path in folder.glob("test_*.py"))
    numbers = set(re.findall(r"\b([ABCFPVX]\d{1,2})\b", PAGE))
    missing = {number for number in numbers if not re.search(rf"test_(\w+_)?{number}_", kit)}
    assert numbers and not missing

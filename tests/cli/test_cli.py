"""Test the `hal` command as a user runs it."""

import errno
import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from shutil import which
from unittest.mock import ANY

import pytest
from fake_site import PLUGIN, FakeSite

import hal_core as hal
from hal_core import cli, config
from hal_core.cli import doctor, main, make_parser
from hal_core.compiler import cache
from hal_core.hookspecs import CAPABILITIES
from hal_kernel.render import RENDERERS
from hal_testing.kit.report import chapters

pytestmark = [pytest.mark.partial, pytest.mark.lowest]

KERNELS = """
import hal_core as hal
@hal.kernel
def scale(y: hal.Ptr[hal.float32], a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * y[i]
@hal.kernel
def wrong(y: hal.Ptr[hal.float32]):
    import os
text = hal.Source("copy", "void copy() {}", "y: float32*", language="c")
"""


@pytest.fixture
def kernels(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    return str(tmp_path / "kernels.py")


def hal_command(site, *arguments, env=None):
    return site.run(f"from hal_core.cli import main; sys.exit(main({list(arguments)}))", env=env)


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"hal-core {hal.__version__}, plugin API 1.0\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [("render", "usage: hal render "), ("cache --clean", "usage: hal cache "),
     ("check CPU --fast", "unrecognized arguments: --fast"),
     ("cache clean", "invalid choice: 'clean'"),
     ("devcies", "no such command: devcies. Did you mean devices?"),
     ("help", "no such command: help. There are devices, doctor, profile, cache, "),
     ("--vresion", "unrecognized arguments: --vresion. Did you mean --version?"),
     ("-q", "unrecognized arguments: -q."),
     ("devices --jsno", "unrecognized arguments: --jsno. Did you mean --json?"),
     ("doctor --time-limt=3", "--time-limt=3. Did you mean --time-limit?"),
     *((f"doctor --time-limit={limit}", f"expected seconds, more than 0 (got '{limit}')")
       for limit in ("0", "-1", "nan", "inf", "soon")),
     ("check --chaptr buffer CPU", "Did you mean --chapter?"),
     ("bench f.py:k --devise CPU --jsn", "Did you mean --device and --json?"),
     ("render f.py:k --langauge c", "Did you mean --language?"),
     ("profile --outt t.html f.py", "unrecognized arguments: --outt. Did you mean --out?"),
     ("new NPU2 --intoo .", "Did you mean --into?"), ("cache --clear", "arguments: --clear.")],
)  # fmt: skip
def test_a_wrong_command_or_option_names_the_nearest_or_the_usage(line, said, capsys):
    with pytest.raises(SystemExit) as caught:
        main(line.split())
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


# -- devices


def test_devices(site):
    site.backend("ACC", distribution="hal_acc")
    site.backend("NONE", "# more\nPlugin.kinds = ()\n")
    site.backend("BAD", "raise OSError")
    done = hal_command(site, "devices", env={"COLUMNS": "20"})  # nothing wraps in a pipe
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.split("\n")]
    assert rows[0] == ["name", "kind", "title", "memory", "arch", "backend", "state"]
    assert " ".join(rows[1]) == "ACC accelerator Fake accelerator 1 MiB fake hal-acc ready, default"
    assert rows[2][0] == "ACC:1"
    assert ["NONE", "no", "hardware"] in rows and ["BAD", "broken"] in rows
    assert "hal doctor" in done.stdout


@pytest.mark.parametrize(
    "source, told",
    [("1 / 0", "division by zero"), ("import sys; sys.exit(3)", "SystemExit: 3"),
     ("", "no attribute 'HELP'"), ("HELP = 'Save 100% at once.'", "no attribute 'add_arguments'")],
)  # fmt: skip
def test_a_broken_command_or_language_is_named_and_hides_no_other(site, source, told):
    name = site.module("broken_command", f"lang = None\n{source}")
    entries = f"[hal.commands]\nfoo = {name}\n[hal.languages]\nklingon = {name}:lang\n"
    site.distribution("hal_foo", f"{entries}\n[hal.commands]\nrender = hal_kernel.cli.render\n")
    done = hal_command(site, "--help")
    assert done.returncode == 0 and "devices" in done.stdout
    assert "Broken: foo:" in done.stdout and told in " ".join(done.stdout.split())
    done = hal_command(site, "render", "mine.py:scale", "--language", "klingon")
    assert done.returncode == 2 and "hal: load klingon: " in done.stderr
    assert "klingon = broken_command:lang of hal-foo" in done.stderr


def test_the_default_device_is_marked(site):
    site.backend("ACC")
    done = hal_command(site, "devices", env={"HAL_DEVICE": "ACC:1"})
    _, first, second = done.stdout.splitlines()
    assert first.split()[-1] == "ready" and second.split()[-2:] == ["ready,", "default"]
    done = hal_command(site, "devices", env={"HAL_DEVICE": "ACC:9"})
    assert done.returncode == 0
    *rows, last = done.stdout.splitlines()
    assert len(rows) == 3 and not any("default" in row for row in rows)
    assert last.startswith("No default device: open: ACC has 2 devices")
    assert last.endswith("HAL_DEVICE=ACC:9 asks for it.")


@pytest.mark.parametrize("name, text", [("HAL_CHEK", "1"), ("HAL_LRU_LIMIT", "x")])
def test_devices_tells_of_a_wrong_setting(site, name, text):
    site.backend("ACCEL")
    done = hal_command(site, "devices", env={name: text})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[2].split()[0] == "ACCEL:1"
    assert name in done.stdout.splitlines()[-1]


def test_devices_in_full(site):
    site.backend("ACC")
    short = hal_command(site, "devices").stdout
    said = hal_command(site, "devices", "-v").stdout
    assert said.startswith(short)
    first, second = said.removeprefix(short).strip("\n").split("\n\n")
    assert first.startswith("ACC: ") and second.startswith("ACC:1: ")
    facts = dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in first.splitlines()[1:])
    # Each capability with its meaning: without fp16, buffers of float16 work all the same.
    assert (
        facts["fp16"]
        == "no: float16 values of a hal.Source kernel; float16 buffers work without it"
    )
    answers = {name: facts[name].partition(": ") for name in CAPABILITIES}
    assert {answer for answer, _, meaning in answers.values() if meaning} == {"no"}
    assert {"block", "grid", "shared memory", "one allocation", "offset of a view"} <= set(facts)


def test_devices_in_json(site):
    site.backend("ACC", distribution="hal_acc")
    site.backend("BAD", "raise OSError")
    found = json.loads(hal_command(site, "devices", "--json").stdout)
    first, second = found["devices"]
    assert (first["name"], second["name"]) == ("ACC", "ACC:1")
    assert first["backend"] == "hal-acc" and first["kind"] == "accelerator"
    assert first["memory_nbytes"] == 1 << 20 and len(first["limits"]["max_grid"]) == 3
    assert set(first["capabilities"]) <= CAPABILITIES
    assert found["families"] == {"ACC": "ready", "BAD": "broken"}
    assert (found["default"], found["problem"]) == ("ACC", "")
    found = json.loads(hal_command(site, "devices", "--json", env={"HAL_DEVICE": "ACC:9"}).stdout)
    assert found["default"] == "" and "ACC has 2 devices" in found["problem"]
    assert json.loads(hal_command(FakeSite(site.folder / "none"), "devices", "--json").stdout) == {
        "devices": [], "families": {}, "default": "", "problem": ANY,
    }  # fmt: skip


def test_json_has_stdout_to_itself_beside_a_backend_that_prints(site):
    site.backend("ACC", "print('a greeting')\n" + PLUGIN)
    done = hal_command(site, "devices", "--json")
    assert json.loads(done.stdout)["default"] == "ACC" and "a greeting" in done.stderr


def test_devices_by_name(site):
    site.backend("ACC")
    site.backend("OTHER")
    site.backend("NONE", "# more\nPlugin.kinds = ()\n")
    for given, names in {
        ("acc",): ["ACC", "ACC:1"],
        ("OTHER:1", "acc:0", "ACC:0"): ["OTHER:1", "ACC"],
    }.items():
        rows = hal_command(site, "devices", *given).stdout.splitlines()[1:]
        assert [row.split()[0] for row in rows] == names
        listed = json.loads(hal_command(site, "devices", "--json", *given).stdout)
        assert [one["name"] for one in listed["devices"]] == names
    for name, said in {
        "ACK": "open: no installed backend has this name (got 'ACK'). Did you mean ACC?",
        "ACC:7": "open: ACC has 2 devices, numbered from 0 (got 'ACC:7'). Use one of ACC, ACC:1.",
        "ACC:x": "device name: a device is FAMILY or FAMILY:INDEX (got 'ACC:x').",
        "NONE": "NONE",  # as `hal.Device[...]` says that there is none
    }.items():
        done = hal_command(site, "devices", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("hal: ") and said in done.stderr


def test_the_module_is_the_command_on_an_empty_machine_too(site):
    run = "runpy.run_module('hal_core', run_name='__main__')"
    done = site.run(f"import runpy; sys.argv = ['hal', 'devices']; {run}")
    assert done.returncode == 0 and "No backend is installed" in done.stdout


# -- errors


def test_an_error_is_one_line_and_exit_code_2(site):
    done = hal_command(site, "cache", env={"HAL_CCACHE": "nonsense"})
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("hal: environment variable HAL_CCACHE: expected 1 or 0")


# -- help


def test_without_a_command_it_lists_them(capsys):
    with pytest.raises(SystemExit) as exit:
        main([])
    said = capsys.readouterr().out
    assert exit.value.code == 0
    assert all(name in said for name in ("devices", "doctor", "new", "check", "render", "try"))


def test_help_is_whole_sentences():
    """A verb first and a full stop at the end; `-h` itself has the text of Python."""
    (added,) = [one for one in make_parser()._actions if isinstance(one.choices, dict)]
    assert list(added.choices) == cli.commands()
    for parser in added.choices.values():
        options = [action.help for action in parser._actions if action.dest != "help"]
        for text in (parser.description, *options):
            assert re.fullmatch(r"[A-Z][a-z]+ .*\.", text), text


@pytest.mark.parametrize(
    ("command", "said"),
    [("check", f"Run these chapters only. There are {', '.join(chapters())}."),
     ("render", f"{', '.join(RENDERERS)} (default: c), or asm, the machine code.")],
)  # fmt: skip
def test_help_names_the_choices(command, said, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert said in " ".join(capsys.readouterr().out.split())


# -- render


MAKERS = """
def make_fill(value, dtype=hal.float32):
    @hal.kernel
    def fill(y: hal.Ptr[dtype]):
        y[hal.global_idx(0)] = value
    print("made")
    return fill
def nothing():
    pass
SIZES = {"a:b": 7}
"""


@pytest.mark.parametrize(
    ("expression", "code", "said"),
    [("make_fill(16)", 0, "16.0"), ("make_fill(value=3, dtype=hal.int32)", 0, "int32_t"),
     ("make_fill(SIZES['a:b'])", 0, "7.0"), ("[make_fill(n) for n in (1, 2)][1]", 0, "2.0"),
     ("make_fill", 2, "make_fill is no kernel (got 'function'). Call a function that makes one"),
     ("make_fill()", 2, "make_fill() failed: TypeError: make_fill() missing 1 required"),
     ("make_fill(16", 2, "failed: SyntaxError: "),
     ("nothing()", 2, "nothing() is no kernel (got 'NoneType'). In the file: scale, wrong, tex"),
     ("make_fills(16)", 2, "failed: NameError: name 'make_fills' is not defined"),
     ("exit(3)", 2, "failed: SystemExit: 3")],
)  # fmt: skip
def test_an_expression_makes_a_kernel_or_the_command_says_why_not(
    kernels, expression, code, said, capsys
):
    with open(kernels, "a") as file:
        file.write(MAKERS)
    assert main(["render", f"{kernels}:{expression}"]) == code
    printed = capsys.readouterr()
    told, silent = printed if not code else printed[::-1]
    assert said in told and silent == "" and "Traceback" not in told and "made" not in printed.out


@pytest.mark.skipif(find_spec("hal_cpu") is None, reason="hal-cpu is not installed here")
def test_render_of_machine_code(kernels, own_cache, capsys):
    if not any(map(which, ("objdump", "llvm-objdump"))):
        pytest.skip("objdump is not installed (apt-get install binutils)")
    for given in (["--language", "asm", "--device", "cpu"], ["--device", "CPU"]):
        assert main(["render", f"{kernels}:scale", *given]) == 0
        assert re.search(r"\bret", capsys.readouterr().out)
    with pytest.raises(SystemExit):
        main(["render", f"{kernels}:scale", "--device", "CPU", "--language", "c"])
    assert "--device is for --language asm" in capsys.readouterr().err


@pytest.mark.parametrize(
    "language, sign",
    [("c", "int64_t"), ("cuda", "__global__"), ("uops", "STORE"), ("opencl", "__kernel"),
     ("llvm", "define "), ("ptx", ".entry"), ("", "none of this name")],
)  # fmt: skip
def test_render_writes_the_languages_that_are_installed(kernels, language, sign, capsys):
    code = main(["render", f"{kernels}:scale", "--language", language])
    said = capsys.readouterr()
    if language in RENDERERS:
        assert sign in said.out and "scale" in said.out and (code, said.err) == (0, "")
    else:  # its backend is not installed
        assert code == 2 and f"no such language (got {language!r})" in said.err


def test_render_into_a_file(kernels, tmp_path, capsys):
    assert main(["render", f"{kernels}:scale"]) == 0
    text = capsys.readouterr().out
    out = tmp_path / "scale.c"
    assert main(["render", f"{kernels}:scale", "-o", str(out)]) == 0
    assert capsys.readouterr() == ("", "")
    assert out.read_text(encoding="utf-8") == text
    assert main(["render", f"{kernels}:scale", "-o", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_render_prints_the_kernel_and_nothing_of_the_file(kernels, capsys):
    assert main(["render", f"{kernels}:text"]) == 0
    text = capsys.readouterr().out
    with open(kernels, "a") as file:
        file.write("print('loading')\n")
    assert main(["render", f"{kernels}:text"]) == 0
    assert capsys.readouterr() == (text, "")


def test_render_shows_what_a_file_printed_before_it_failed(tmp_path, capsys):
    (tmp_path / "fails.py").write_text("print('so far')\nraise ValueError('no')")
    assert main(["render", f"{tmp_path}/fails.py:scale"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("so far\nhal: load kernel: ")


def test_render_of_a_file_with_one_kernel_needs_no_name(kernels, tmp_path, capsys):
    one = tmp_path / "one.py"
    one.write_text('import hal_core as hal\nk = hal.Source("k", "text", "", language="c")')
    assert main(["render", str(one)]) == 0
    assert capsys.readouterr().out == "text\n"
    assert main(["render", kernels]) == 2
    assert "several kernels: scale, wrong, text. Give FILE:KERNEL." in capsys.readouterr().err
    one.write_text("pass")
    assert main(["render", str(one)]) == 2
    assert "the file has no kernel" in capsys.readouterr().err


def test_render_of_a_source_is_its_text(kernels, capsys):
    for language in ([], ["--language", "c"]):
        assert main(["render", f"{kernels}:text", *language]) == 0
        assert capsys.readouterr().out == "void copy() {}\n"
    assert main(["render", f"{kernels}:text", "--language", "cuda"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "copy is text in c already (got 'cuda')" in err


def test_render_shows_the_file_its_own_arguments(tmp_path):
    """Not those of `hal render`: a file that reads sys.argv took them for its own."""
    path = tmp_path / "own.py"
    path.write_text("import sys\nassert sys.argv == [__file__], sys.argv\n" + KERNELS)
    before = list(sys.argv)
    assert main(["render", f"{path}:scale", "--language", "c"]) == 0
    assert sys.argv == before


OWN_KIND = """
import types
import hal_core as hal
class Own(BaseException):
    pass
class Module(types.ModuleType):
    def __getattr__(self, name):
        raise Own("mine")
module = Module("module")
@hal.kernel
def reads(y: hal.Ptr[hal.int32]):
    y[0] = module.x
"""


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("", "reads cannot be read: Own: mine. reads.lower() shows where."),
        ("raise Own('two\\nlines')", "ran and failed: Own: two lines. See line 13."),
        ("x = = 1", "own.py is no Python: SyntaxError: invalid syntax (own.py, line 13)."),
    ],
)
@pytest.mark.parametrize("command", ["render", "try", "bench"])
def test_an_exception_of_a_kind_of_its_own_is_one_line(command, end, said, tmp_path, capsys):
    """One that is no Exception, of the file or of what its kernel captures, was a traceback."""
    path = tmp_path / "own.py"
    path.write_text(OWN_KIND + end)
    assert main([command, str(path)]) == (1 if command == "try" and not end else 2)
    assert said in "".join(capsys.readouterr()).replace("\n", " ")


def test_render_says_what_is_wrong(kernels, tmp_path, capsys):
    (tmp_path / "fails.py").write_text("\nraise SystemExit('no')")
    (tmp_path / "device.py").write_text("import hal_core as hal\nhal.Device['CPU:x']")
    (tmp_path / "scale.cl").write_text("__kernel void scale() {}")
    cases = {
        f"{tmp_path}/scale.cl": "not a Python file",
        f"{kernels}:scales": "no such kernel (got 'scales'). In the file: scale, wrong, text.",
        f"{tmp_path}/none.py:scale": "no such file",
        "scale": "no such file (got 'scale'). Give a Python file, or FILE:KERNEL.",
        f"{tmp_path}/scael.cl:scale": "no such file",
        f"{tmp_path}/kernel.py:scale": f"Did you mean {kernels}?",
        f"{tmp_path}/none/kernel.py": "no such file",
        str(tmp_path): "a folder, not a file",
        f"{tmp_path}/fails.py:scale": "fails.py ran and failed: SystemExit: no. See line 2.",
        f"{tmp_path}/device.py:scale": "device.py ran and failed: InvalidArgument: device name:",
        f"{kernels}:wrong": "kernels.py",  # a KernelSyntaxError shows its place
    }
    for target, text in cases.items():
        assert main(["render", target]) == 2
        said = capsys.readouterr()
        assert said.out == "" and text in said.err and "Traceback" not in said.err
    assert main(["render", f"{kernels}:scale", "--language", "cobol"]) == 2
    assert (
        f"no such language (got 'cobol'). Known: {', '.join(RENDERERS)}, asm"
        in capsys.readouterr().err
    )


# -- sizes


@pytest.mark.parametrize(
    "nbytes, text",
    [
        (0, "0 B"), (999, "999 B"), (1023, "1023 B"), (1536, "1.5 KiB"),
        (1023 << 10, "1023 KiB"), (512 << 20, "512 MiB"), (23 << 30, "23 GiB"),
        (1 << 50, "1 PiB"), (1 << 99, "more than 500 PiB"),
    ],
)  # fmt: skip
def test_sizes_are_short_and_have_a_unit(nbytes, text):
    assert config.size(nbytes) == text


# -- cache


def test_cache(own_cache, monkeypatch, capsys):
    cache.store("ab" * 32, b"x" * 1000)
    assert main(["cache"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{own_cache}: 1 entries, 1.0") and line.endswith("of at most 512 MiB")
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"1 entries deleted from {own_cache}\n"
    monkeypatch.setenv("HAL_CCACHE", "0")
    assert main(["cache"]) == 0
    assert "is off" in capsys.readouterr().out


def test_C4_cache_in_json(own_cache, capsys):
    cache.store("ab" * 32, b"x" * 1000)
    assert main(["cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "folder": str(own_cache), "entries": 1, "nbytes": 1076, "limit": 512 << 20, "deleted": 0,
    }  # fmt: skip
    assert main(["cache", "clear", "--json"]) == 0
    cleared = json.loads(capsys.readouterr().out)
    assert (cleared["deleted"], cleared["entries"]) == (1, 0)


class Failing(io.StringIO):
    """A stream that takes nothing."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def write(self, text):
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(
    "command",
    [["devices", "-v"], ["doctor", "--time-limit", "9"], ["cache"], ["cache", "--json"], ["--help"],
     ["--version"], ["devices", "--help"],
     ["render", "{kernels}:scale", "--language", "c"], ["try", "{kernels}:scale"]],
    ids=str,
)  # fmt: skip
def test_a_full_disk_is_told_in_one_line_and_a_closed_pipe_is_not(
    command, kernels, capsys, monkeypatch
):
    monkeypatch.setattr(doctor, "probed", lambda plugin, limit: plugin._replace(state="ready"))
    given = [word.replace("{kernels}", kernels) for word in command]
    full = "hal: the output cannot be written: No space left on device\n"
    for number, code, said in ((errno.ENOSPC, 2, full), (errno.EPIPE, 0, "")):
        with redirect_stdout(Failing(number)):
            assert main(given) == code
        assert capsys.readouterr().err == said


def test_ctrl_c_prints_nothing_and_ends_as_python_does(capsys, monkeypatch):
    """An interpreter ends by SIGINT when a KeyboardInterrupt has reached its end."""

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    for name in cli.commands():
        monkeypatch.setattr(cli.module_of(name), "run", interrupted)
    takes = ("new", "check", "render", "try", "bench", "profile", "explain")
    required = {key: ["A"] for key in takes}
    for name in cli.commands():
        with pytest.raises(KeyboardInterrupt) as caught:
            main([name, *required.get(name, [])])
        sys.excepthook(caught.type, caught.value, caught.tb)
        assert capsys.readouterr() == ("", "")
    sys.excepthook(ValueError, ValueError("of the program"), None)
    assert "of the program" in capsys.readouterr().err


_CTRL_C_AT_AN_IMPORT = """
import os, signal, sys

def hook(event, details):
    if event == "import" and details[0] == module:
        os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop(1)
import hal_core.__main__
sys.addaudithook(hook)
sys.exit(hal_core.__main__.main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT of its own")
@pytest.mark.parametrize(
    "module", ["hal_core.cli", "argparse", "numpy", "datetime", "hal_kernel.cli.arguments"]
)
def test_ctrl_c_while_the_command_is_imported_prints_nothing(module):
    """Also where numpy makes an ImportError of it, which is where it imports datetime."""
    command = [sys.executable, "-c", _CTRL_C_AT_AN_IMPORT, module, "bench", "missing.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-2, "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT of its own")
def test_a_command_that_ignores_ctrl_c_does_so_while_it_is_imported():
    """A shell starts it so behind `nohup`, or with `&` in a script."""
    text = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{_CTRL_C_AT_AN_IMPORT}"
    command = [sys.executable, "-c", text, "numpy", "cache"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout and not done.stderr


def test_closed_streams_are_no_fault(monkeypatch):
    for name in ("__stdout__", "__stderr__"):
        monkeypatch.setattr(sys, name, None)
    with redirect_stdout(None), redirect_stderr(None):
        assert main(["cache"]) == 0
        assert sys.__stdout__ is not None and sys.__stderr__ is not None, "as pytest needs it"
        for stream in (sys.stdout, sys.stderr):
            stream.close()


def test_a_terminal_that_lacks_a_letter_is_no_fault(monkeypatch):
    monkeypatch.setattr(cli.cache, "HELP", "Kernels of Müller \u2192 cache.")
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="cp1252")) as stream:
        with pytest.raises(SystemExit) as caught:
            main(["cache", "--help"])
        stream.seek(0)
        assert caught.value.code == 0 and "Kernels of Müller ? cache." in stream.read()

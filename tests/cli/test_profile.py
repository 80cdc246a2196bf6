"""Test `hal profile FILE`: the program runs unchanged, and a table shows where its time went."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_backend import FakePlugin
from forked import Programs

import hal_core as hal
from hal_core import files
from hal_core.cli import main
from hal_core.cli import profile as command
from hal_core.profiling.events import ProfileDeviceEvent, ProfileProgramEvent

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
import hal_core as hal
device = hal.Device["FAKE"]
text = "def work(t, y): pass"
program = device.compile(hal.Source("work", text, "y: float32*", language="python"))
y = hal.zeros(64, hal.float32, device)
for _ in range(5):
    program(y, threads=64)
y.numpy()
print(__name__, sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def fake(own_sys):
    hal.Device.register_plugin("FAKE", FakePlugin())
    yield
    hal.Device["FAKE"].close()


def profile(tmp_path, text, *arguments):
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    return main(["profile", str(tmp_path / "program.py"), *arguments])


@pytest.fixture(scope="module")
def programs():
    head = f"import sys; sys.path.append({str(ROOT / 'tests')!r})\n"
    with Programs(head + "import fake_backend, hal_core.__main__, hal_core.cli.profile\n") as made:
        yield made


@pytest.fixture
def ran(programs, tmp_path):
    """Run `hal profile` on a text in a process of its own."""

    def run(text, *arguments):
        (tmp_path / "program.py").write_text(text, encoding="utf-8")
        begin = f"os.chdir({str(tmp_path)!r}); sys.argv[:] = {['hal', 'profile', *arguments]}\n"
        return programs.run(begin + "sys.exit(hal_core.__main__.main())")

    return run


def rows(table):
    """Return the cells of each line of the table, by the kind of event."""
    found = [line.split() for line in table.splitlines() if line.startswith(" FAKE")]
    return {kind: rest for _, kind, *rest in found}


def test_a_table_of_what_was_done_follows_the_program(tmp_path, capsys):
    assert profile(tmp_path, PROGRAM, "--size", "8") == 0
    out, err = capsys.readouterr()
    assert out == "__main__ ['--size', '8']\n"
    found = rows(err)
    assert found["launch"][:2] == ["work", "5"] and found["copyout"][0] == "1"
    assert found["copyout"][-1] == "256", "bytes"
    assert {"alloc", "launch", "copyout"} <= set(found)


def test_in_json_what_the_program_prints_goes_to_stderr(ran):
    """The output of its child processes goes there, too: stdout is one document."""
    text = (
        "import os, sys\nfrom hal_core import Device, zeros, int8\n"
        "from fake_backend import FakePlugin\n"
        "Device.register_plugin('FAKE', FakePlugin())\nzeros(64, int8, 'FAKE').numpy()\n"
        "print('mine', sys.argv[1:], flush=True)\nos.system('echo theirs')\nsys.exit(3)\n"
    )
    done = ran(text, "--json", "program.py", "--json")
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    (copy,) = (event for event in found["events"] if event["kind"] == "copyout")
    assert (copy["device"], copy["times"], copy["nbytes"]) == ("FAKE", 1, 64)
    assert copy["seconds"] > 0 and found["dropped"] == 0
    assert done.stderr.splitlines() == ["mine ['--json']", "theirs"]


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [("sys.exit()", 0, ""), ("sys.exit(3)", 3, ""), ("sys.exit('no more')", 1, "no more"),
     ("y.deallocate(); y.numpy()", 1, "hal_core.errors.InvalidState: copyout:")],
)  # fmt: skip
def test_a_program_that_ends_early_is_in_the_table_too(tmp_path, end, code, said, capsys):
    assert profile(tmp_path, PROGRAM + end) == code
    err = capsys.readouterr().err
    assert rows(err)["launch"][:2] == ["work", "5"]
    assert said in err and err.index(said) < err.index("launch")


@pytest.mark.parametrize("text", ["def f():\n    1 / 0\nf()", "x = (", "raise KeyError from None"])
def test_a_traceback_has_the_frames_of_the_program_alone(tmp_path, text, capfd):
    assert profile(tmp_path, text) == 1
    shown = capfd.readouterr().err.split("hal profile:")[0]
    alone = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(alone, capture_output=True, text=True, check=False, timeout=60)
    assert shown == done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no SIGINT of its own")
def test_ctrl_c_ends_it_as_it_ends_the_program(ran):
    done = ran("import os\nos.kill(os.getpid(), 2)\nfor _ in 'abc': pass", "program.py")
    assert done.returncode == -2 and done.stdout == ""
    *_, interrupt, table = done.stderr.splitlines()
    assert interrupt == "KeyboardInterrupt" and "no device did anything" in table


def test_threads_of_the_program_are_waited_for(ran, tmp_path):
    """Also an idle thread of an executor, which ends when the interpreter does."""
    text = (
        "from fake_backend import FakePlugin\nimport hal_core as hal, sys, threading, time\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "hal.Device.register_plugin('FAKE', FakePlugin())\n"
        "pool = ThreadPoolExecutor()\npool.submit(print, 'pool').result()\n"
        "def late():\n    time.sleep(0.2)\n    hal.zeros(64, hal.int8, 'FAKE')\n"
        "threading.Thread(target=late).start()\nsys.exit(3)\n"
    )
    done = ran(text, "-o", "t.json", "program.py")
    assert (done.returncode, done.stdout) == (3, "pool\n")
    assert rows(done.stderr).keys() == {"alloc", "fill", "free"}
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


@pytest.mark.parametrize(
    "end",
    ["sys.stdout.close()", "sys.stderr.close()", "sys.stdout = sys.stderr = None",
     "os.close(1); os.close(2)", "sys.stderr.close(); sys.exit('no more')",
     "sys.stdout = io.TextIOWrapper(sys.stdout.buffer); print('last')",
     "sys.stderr = io.TextIOWrapper(sys.stderr.buffer)"],
)  # fmt: skip
def test_a_program_that_closes_its_output_loses_no_trace(ran, tmp_path, end):
    done = ran(f"import io, os, sys\n{end}", "-o", "t.json", "program.py")
    assert done.returncode == int("exit" in end), done.stderr
    assert "no device did anything" in done.stderr and "Traceback" not in done.stderr
    assert done.stdout.splitlines() == ["last"] * ("last" in end)
    assert "traceEvents" in json.loads((tmp_path / "t.json").read_text())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
def test_a_forked_child_writes_no_table_and_no_trace(tmp_path):
    """It ends behind its parent here, whose trace it would replace."""
    text = "import os, time\nif not os.fork():\n    time.sleep(0.5)\n    raise SystemExit(0)"
    (tmp_path / "program.py").write_text(text)
    command = [sys.executable, "-m", "hal_core", "profile", "-o", "t.json", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("no device did anything")) == (0, 1)


def test_a_trace_that_cannot_be_written_costs_no_table(tmp_path, capsys, monkeypatch):
    write, failed = files.write_whole, []

    def full(path, data):
        if not failed:
            failed.append(path)
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(files, "write_whole", full)
    (tmp_path / "program.py").write_text(PROGRAM)
    target = str(tmp_path / "t.json")
    assert main(["profile", "-o", target, str(tmp_path / "program.py")]) == 0
    err = capsys.readouterr().err
    assert rows(err)["launch"][:2] == ["work", "5"] and failed == [target]
    assert "file cannot be written: No space left on device" in err
    other = Path(err.rstrip().rpartition("The trace is in ")[2])
    assert json.loads(other.read_text())["traceEvents"]
    shutil.rmtree(other.parent)
    # A file where a folder should be is found before the program runs.
    target = str(tmp_path / "program.py" / "x.html")
    assert main(["profile", "-o", target, str(tmp_path / "program.py")]) == 2
    assert "the trace cannot be written" in capsys.readouterr().err


def test_a_program_that_wanted_arguments(tmp_path, capsys):
    assert profile(tmp_path, "import sys\nsys.exit(2)") == 2
    assert "exit code 2. If it needs arguments, give them behind FILE" in capsys.readouterr().err


def test_a_program_may_profile_itself(tmp_path):
    assert profile(tmp_path, "import hal_core as hal\nhal.start_profile()" + PROGRAM) == 0
    assert [event.kind for event in hal.finalize_profile()].count("launch") == 5


def test_no_device_and_no_file(tmp_path, capsys):
    assert profile(tmp_path, "pass") == 0
    assert "no device did anything" in capsys.readouterr().err
    assert main(["profile", str(tmp_path / "none.py")]) == 2
    assert "hal: profile: no such file" in capsys.readouterr().err
    (tmp_path / "program.py").write_text("pass")
    assert main(["profile", str(tmp_path / "porgram.py")]) == 2
    assert f"Did you mean {tmp_path / 'program.py'}?" in capsys.readouterr().err
    assert main(["profile", str(tmp_path)]) == 2
    assert "profile: a folder, not a file" in capsys.readouterr().err


def test_events_that_gave_way_are_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "_LIMIT", 2)
    assert profile(tmp_path, PROGRAM) == 0
    err = capsys.readouterr().err
    assert "The last 2 events; " in err and " before them are not counted." in err


def test_lines_add_up_and_the_longest_comes_first():
    def event(kind, name, start, end):
        what = "launch" if kind is ProfileProgramEvent else name
        return kind(what, name, "CHIP", start, end, 10, 0)

    found = command.lines(
        [
            event(ProfileDeviceEvent, "fill", 0, 5),
            event(ProfileProgramEvent, "fill", 5, 25),  # a kernel of that name
            event(ProfileDeviceEvent, "fill", 25, 30),
        ]
    )
    assert [line[:4] for line in found] == [
        ("CHIP", "launch", "fill", 1),
        ("CHIP", "fill", "fill", 2),
    ]
    assert [line.nbytes for line in found] == [10, 20]
    assert found[1].seconds == pytest.approx(10e-9)

"""Test `hal check` as a user runs it, and the reports of the kit."""

import json
import os
import re
import subprocess
import sys

import pytest
from forked import collected_kit

from hal_testing.kit.report import Report, Result, chapters

# Registers the fake as FAKE, with a change that a test gives, then is the `hal` command.
COMMAND = """
import sys
import hal_core as hal
from hal_testing.fake import FakePlugin, hookimpl
plugin = FakePlugin()
{change}
hal.Device.register_plugin("FAKE", plugin)
from hal_core.cli import main
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
# Several commands in one process, each with its exit code and what it prints.
EACH = """
import contextlib, io, json
from hal_core.cli import main
hal.Device.register_plugin("FAKE", plugin)
for arguments in json.loads(sys.argv.pop()):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["check", *arguments])
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
sys.exit()
"""
FORGETFUL = """
from hal_testing.fake.allocator import FakeAllocator
whole = FakeAllocator._copyin
FakeAllocator._copyin = lambda self, dest, src: whole(self, dest, src[:-1])
"""
STUCK = """
from hal_testing.fake.allocator import FakeAllocator
import time
FakeAllocator._copyout = lambda self, dest, src: time.sleep(60)
"""
ABSENT = """
class Absent(FakePlugin):
    @hookimpl
    def hal_enumerate(self, family):
        return []
plugin = Absent()
"""


@pytest.fixture(scope="module")
def programs():
    with collected_kit(optimize="1") as made:
        yield made


class Command:
    """`hal check` and pytest in a folder, on the fake with a change."""

    def __init__(self, programs, folder):
        self._programs, self._folder = programs, folder

    def check(self, *arguments, change="", env=None):
        begin = f"os.chdir({str(self._folder)!r}); sys.argv[:] = {['hal', 'check', *arguments]}\n"
        return self._programs.run(begin + COMMAND.format(change=change), os.environ | (env or {}))

    def pytest(self, *arguments, change=""):
        (self._folder / "pytest.ini").write_text("[pytest]\n")
        (self._folder / "conftest.py").write_text(COMMAND.format(change=change))
        options = ["-q", "-p", "no:cacheprovider", "-p", "hal_testing.plugin", "--pyargs"]
        options += ["hal_testing.conformance", "--hal-device", "FAKE", *arguments]
        text = f"os.chdir({str(self._folder)!r}); sys.exit(pytest.main({options}))"
        return self._programs.run(text, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


@pytest.fixture
def command(programs, tmp_path):
    return Command(programs, tmp_path)


def test_a_backend_that_conforms(tmp_path):
    """In a fresh process, in which the folder's and the caller's settings have no effect."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --there-is-no-such-option\n")
    (tmp_path / "conftest.py").write_text("raise SystemExit('the conftest was imported')\n")
    (tmp_path / "test_mine.py").write_text("def test_mine(): assert False\n")
    env = {"PYTEST_ADDOPTS": "--nonsense", "PYTEST_PLUGINS": "nothing_like_this"}
    arguments = ("FAKE", "--chapter", "view", "--report", "r.json")
    text = COMMAND.format(change=f"sys.argv[:] = {['hal', 'check', *arguments]}")
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", text],
        cwd=tmp_path, env=os.environ | env, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("FAKE") and "compiler listing" in lines[0]
    assert re.match(r"kit \d+\.\d+, hal-core \d.*, Python 3", lines[1])
    assert re.match(r" View +\d+ +- +- +- +\d+\.\d", lines[3])
    assert re.match(r"FAKE passes the \d+ tests of View, in \d+ s\.", lines[-1])
    assert len(lines) == 5, "no more than this"
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["chapters"]["View"]["passed"] > 10 and not report["failed"]
    assert not report["conforms"] and "buffer" in report["not_run"], "one chapter is not all"
    assert report["compiler"] == "listing" and report["hardware"]["limits"]["max_block_threads"]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"pytest.ini", "conftest.py", "test_mine.py", "r.json"}


def test_a_backend_that_does_not_conform(command, tmp_path):
    """The kit's asserts hold under -O."""
    arguments = ("FAKE", "--chapter", "view", "--report", "r.md", "--report", "r.json")
    done = command.check(*arguments, change=FORGETFUL)
    assert (done.returncode, done.stderr) == (1, "")
    assert re.search(r"^failed: TestView::test_V1_\w+$\n    \S", done.stdout, re.M)
    assert re.search(r"FAKE does not conform: \d+ of \d+ tests fail, in \d+ s\.\n\Z", done.stdout)
    failed = json.loads((tmp_path / "r.json").read_text())["failed"]
    assert any(one["test"].startswith("TestView::test_V1") and one["why"] for one in failed)
    assert re.search(r"^\| `TestView::test_V1_.*\| .+ \|$", (tmp_path / "r.md").read_text(), re.M)


def test_no_hardware_is_one_line(command):
    each = json.dumps([["FAKE"], ["FAKE", "--require-device"]])
    done = command.check(each, change=ABSENT + EACH)
    plain, required = map(json.loads, done.stdout.splitlines())
    assert (plain[0], plain[1].count("\n"), plain[2]) == (0, 1, "")
    assert plain[1].endswith("with --require-device this is a failure.\n")
    assert (required[0], required[1], required[2].count("\n")) == (2, "", 1)


def test_wrong_arguments_are_one_line(command):
    wrong = (
        (["NOPE"], r"open: no installed backend has this name \(got 'NOPE'\)"),
        (["FAKR"], "FAKR.*FAKE"),
        (["FAKE:7"], "FAKE:7"),
        (["FAKE", "--pair", "listng"], "listng.*listing"),
        (["FAKE", "--chapter", "vieuw"], "vieuw.*view"),
        (["FAKE", "--report", "r.txt"], r"r\.txt.*\.md"),
        (["FAKE", "--known-gaps", "gone"], "gone"),
    )
    done = command.check(json.dumps([arguments for arguments, _ in wrong]), change=EACH)
    assert (done.returncode, done.stderr) == (0, "")
    for (_, said), line in zip(wrong, done.stdout.splitlines(), strict=True):
        code, out, err = json.loads(line)
        assert (code, out) == (2, "")
        assert re.fullmatch(rf"hal: .*{said}.*\n", err)


@pytest.mark.full
def test_known_gaps_are_counted_and_strict(command, tmp_path):
    gaps = tmp_path / "gaps.txt"
    broken = command.check("FAKE", "--chapter", "view", change=FORGETFUL)
    names = re.findall(r"^failed: (\S+)$", broken.stdout, re.M)
    gaps.write_text("# a comment\n" + "".join(f"{name} the last byte\n" for name in names))
    arguments = ("FAKE", "--chapter", "view", "--known-gaps", "gaps.txt")
    done = command.check(*arguments, change=FORGETFUL)
    assert done.returncode == 0, done.stdout
    assert f"known gap: {len(names)}, the last byte" in done.stdout
    mended = command.check(*arguments)
    assert mended.returncode == 1 and f"{len(names)} of" in mended.stdout


def test_a_test_that_hangs_ends_the_run_and_says_where(command):
    done = command.pytest("-k", "test_B4_takes_any", "--hal-time-limit", "2", change=STUCK)
    assert done.returncode == 1
    assert "Timeout" in done.stderr and "test_B4_takes_any_contiguous_memory" in done.stderr


def test_plain_pytest_writes_reports(command, tmp_path):
    reports = ("--hal-report", "a.json", "--hal-report", "b.md")
    done = command.pytest("-k", "test_V1", *reports, change=FORGETFUL)
    assert done.returncode == 1, done.stdout
    report = json.loads((tmp_path / "a.json").read_text())
    assert len(report["failed"]) == report["chapters"]["View"]["failed"] > 0
    assert "does not conform" in (tmp_path / "b.md").read_text()
    assert command.pytest("--hal-report", "c.txt").returncode == 4


@pytest.mark.full
def test_chapters_are_whole_where_an_author_imports_them(command, tmp_path):
    (tmp_path / "conftest.py").write_text(COMMAND.format(change=""))
    (tmp_path / "test_mine.py").write_text("from hal_testing.conformance import *\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nhal_device = FAKE\n")
    plain = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    plain += ["-p", "hal_testing.plugin", "test_mine.py"]
    counts = []
    for what in ("--setup-plan", "--collect-only"):  # the first looks for the fixtures
        done = subprocess.run([*plain, what], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:]
        counts.append(done.stdout.count("::test_"))
    inside = command.pytest("--collect-only").stdout.count("::test_")
    assert counts == [inside, inside]


def test_ids_have_no_blanks(command):
    """A line of the known gaps is an id, a blank and a reason, so ids have none."""
    done = command.pytest("--collect-only")
    ids = [line for line in done.stdout.splitlines() if "::" in line]
    assert len(ids) > 300
    assert not [name for name in ids if re.search(r"\s", name)]
    assert len(set(ids)) == len(ids)


def test_a_report_in_both_forms():
    results = (
        Result("TestView::test_V1_x", "passed", 0.5),
        Result("TestView::test_V2_y[a|b]", "failed", 1.0, "assert 1 == 2\n + more | of it"),
        Result("TestBuffer::test_B1_z", "skipped", 0.25, "it declares no fp64"),
        Result("TestBuffer::test_B2_z", "known gap", 0.25, "the driver's fault"),
    )
    report = Report("CHIP:1", {"kit": "1.0", "hardware": {"title": "a chip"}}, results, 2.0)
    read = json.loads(report.to_json())
    assert read["chapters"]["View"] == {
        "passed": 1, "failed": 1, "skipped": 0, "known gap": 0, "seconds": 1.5,
    }  # fmt: skip
    assert read["skipped"] == [{"test": "TestBuffer::test_B1_z", "why": "it declares no fp64"}]
    assert read["failed"][0]["why"].endswith("of it") and not read["conforms"]
    text = report.to_markdown()
    assert "| `TestView::test_V2_y[a\\|b]` | assert 1 == 2 |" in text
    assert "| hardware title | a chip |" in text and "| Buffer | 0 | 0 | 1 | 1 | 0.5 |" in text
    assert report.verdict == "CHIP:1 does not conform: 1 of 2 tests fail, 1 known gaps, in 2 s."


@pytest.mark.parametrize(
    ("why", "verdict"),
    [("it declares no images", "CHIP conforms: "),
     ("it declares no renderer: the device takes text alone", "CHIP passes the "),
     ("nothing to try: override the fixture hal_source", "CHIP passes the ")],
)  # fmt: skip
def test_a_chapter_of_what_a_device_may_lack_is_no_gap(why, verdict):
    results = [Result(f"Test{name.title()}::test", "passed", 0.1) for name in chapters()]
    results[0] = results[0]._replace(outcome="skipped", why=why)
    assert Report("CHIP", {}, tuple(results), 1.0).verdict.startswith(verdict)

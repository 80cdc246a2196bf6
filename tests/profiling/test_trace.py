"""F1, F2: a profile as a file. Every field of the JSON is held against the rules of its format."""

import json
import math
import os
import pickle
import random
import re
import signal
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from fake_backend import FakePlugin
from hypothesis import given
from hypothesis import strategies as st
from run_python import run

import hal_core as hal
from hal_core.cli import main
from hal_core.profiling import trace
from hal_core.profiling.events import ProfileEvent

# Phase -> the fields that its events must have beside ph, name, pid, tid, and those they may have.
# Source: Trace Event Format, "Event Types".
FIELDS = {
    "X": ({"ts", "dur"}, {"cat", "args"}), "C": ({"ts", "args"}, {"cat"}), "M": ({"args"}, set()),
    "s": ({"ts", "id", "cat"}, {"args"}), "f": ({"ts", "id", "cat"}, {"args", "bp"}),
}  # fmt: skip
METADATA = {
    "process_name": {"name": str}, "process_sort_index": {"sort_index": int},
    "thread_name": {"name": str}, "thread_sort_index": {"sort_index": int},
}  # fmt: skip


def check(document):
    """Refuse a document that breaks a rule of the format."""
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    rows = defaultdict(list)
    flows = defaultdict(list)
    for event in document["traceEvents"]:
        phase = event["ph"]
        needed, allowed = FIELDS[phase]
        common = {"ph", "name", "pid", "tid"}
        assert common | needed <= set(event) <= common | needed | allowed, event
        assert isinstance(event["name"], str) and isinstance(event.get("cat", ""), str)
        assert type(event["pid"]) is int and event["pid"] > 0, "0 is the idle task to Perfetto"
        assert type(event["tid"]) is int and (event["tid"] > 0 or phase in "MC")
        for time in (event.get("ts", 0.0), event.get("dur", 0.0)):
            assert isinstance(time, (int, float)) and math.isfinite(time) and time >= 0
        if phase == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif phase == "C":
            assert event["args"] and all(type(value) is int for value in event["args"].values())
        elif phase == "M":
            kinds = METADATA[event["name"]]
            assert {key: type(value) for key, value in event["args"].items()} == kinds
        else:
            assert type(event["id"]) is int and event.get("bp", "e") == "e"
            flows[event["id"]].append(event)
    for slices in rows.values():  # of a row, each is beside or inside of another
        ends = []
        for start, end in sorted(slices, key=lambda one: (one[0], -one[1])):
            while ends and ends[-1] <= start + 1e-6:
                ends.pop()
            assert not ends or end <= ends[-1] + 1e-6
            ends.append(end)
    for flow in flows.values():
        start, finish = flow
        assert (start["ph"], finish["ph"]) == ("s", "f")
        assert (start["name"], start["cat"]) == (finish["name"], finish["cat"])
        assert start["ts"] <= finish["ts"]
        for event in flow:  # a flow is bound to the slice around it
            assert any(a <= event["ts"] <= b for a, b in rows[event["pid"], event["tid"]])


def made(events):
    document = json.loads(json.dumps(trace.trace(events, 3)))
    check(document)
    return document


def event(kind, name, start, end, device="GPU", queue="", **more):
    facts = {"nbytes": 0, "thread": 1} | more
    return ProfileEvent(kind, name, device, start, end, queue=queue, **facts)


SAMPLE = [
    event("range", "step", 1000, 9000, device=""),
    event("range", "part", 2000, 3000, device=""),
    event("alloc", "alloc", 1500, 1600, nbytes=64),
    event("launch", "first", 2000, 4000, queue="one"),
    event("wait", "GPU, one", 2100, 4100, queue="two"),
    event("launch", "second", 4100, 6000, queue="two"),
    event("free", "free", 7000, 7100, nbytes=64),
]


def test_F2_rows_arrows_and_memory():
    document = made(SAMPLE)
    names = {
        (one["pid"], one["tid"]): one["args"]["name"]
        for one in document["traceEvents"]
        if one["name"] == "thread_name"
    }
    processes = {
        one["pid"]: one["args"]["name"]
        for one in document["traceEvents"]
        if one["name"] == "process_name"
    }
    placed = [
        (processes[one["pid"]], names[one["pid"], one["tid"]], one["name"], one["ts"], one["dur"])
        for one in document["traceEvents"]
        if one["ph"] == "X"
    ]
    assert placed == [
        ("host", "thread 1", "step", 0.0, 8.0), ("host", "thread 1", "part", 1.0, 1.0),
        ("GPU", "thread 1", "alloc", 0.5, 0.1), ("GPU", "thread 1", "free", 6.0, 0.1),
        ("GPU", "one", "first", 1.0, 2.0), ("GPU", "two", "GPU, one", 1.1, 2.0),
        ("GPU", "two", "second", 3.1, 1.9),
    ]  # fmt: skip
    counters = [one for one in document["traceEvents"] if one["ph"] == "C"]
    points = [(one["ts"], one["args"]["bytes"]) for one in counters]
    assert points == [(0.0, 0), (0.6, 64), (6.1, 0)]
    start, finish = (one for one in document["traceEvents"] if one["ph"] in "sf")
    assert names[start["pid"], start["tid"]] == "one" and start["ts"] == 2.0
    assert names[finish["pid"], finish["tid"]] == "two" and finish["ts"] == 2.1
    assert document["otherData"]["dropped"] == 3


@given(st.integers(0, 10**6))
def test_F2_any_events_make_a_valid_trace(seed):
    """Several threads at once, on several devices and queues, in any order."""
    draw, events = random.Random(seed), []
    for _ in range(draw.randrange(40)):
        start = draw.randrange(1000)
        kind = draw.choice(["range", "alloc", "free", "launch", "copyin", "compile", "wait"])
        name = "A, default queue" if kind == "wait" else draw.choice(["x", "</script>", "\u2028"])
        device = "" if kind == "range" else draw.choice("AB")
        queue = draw.choice(["", "two"]) if kind in ("launch", "copyin", "wait") else ""
        end = start + draw.randrange(300)
        numbers = {"nbytes": draw.randrange(99), "thread": draw.randrange(3)}
        events.append(event(kind, name, start, end, device, queue, **numbers))
    document = made(events)
    slices = [one for one in document["traceEvents"] if one["ph"] == "X"]
    assert Counter(one["name"] for one in slices) == Counter(one.name for one in events)
    counters = [one["args"]["bytes"] for one in document["traceEvents"] if one["ph"] == "C"]
    assert min(counters, default=0) >= 0
    body = trace.page(events, 0).partition("<script>")[2]
    assert body.count("</script>") == 1, "a name ends the script"


# -- files


@pytest.mark.parametrize("suffix", [".json", ".html", ".pickle", ".JSON"])
def test_F2_a_profile_is_saved(suffix, fake, tmp_path):
    with hal.profile() as profile:
        with hal.profile_range("a <b>"):
            hal.zeros(8, hal.int32, fake)
        path = tmp_path / f"trace{suffix}"
        path.write_text("old")
        profile.save(path)  # also while it is open
    assert os.listdir(tmp_path) == [path.name] or set(os.listdir(tmp_path)) >= {path.name}
    profile.save(path)
    if suffix == ".html":
        text = path.read_text(encoding="utf-8")
        assert "a \\u003cb>" in text and "default-src 'none'" in text
        assert not re.findall(r"(?:src|href)=", text), "it would load something"
    elif suffix == ".pickle":
        assert pickle.loads(path.read_bytes()) == profile.events
    else:
        document = json.loads(path.read_text())
        check(document)
        assert {one["name"] for one in document["traceEvents"]} >= {"a <b>", "alloc", "fill"}


@pytest.mark.parametrize("name", ["trace", "trace.txt", "trace.html.gz", ""])
def test_F2_another_suffix_is_refused(name, tmp_path):
    with pytest.raises(hal.InvalidArgument, match="expected a file that ends in .json or .html"):
        hal.Profile().save(os.path.join(tmp_path, name))
    assert not os.listdir(tmp_path)


def test_F2_a_trace_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text("old")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        hal.Profile().save(path)
    assert os.listdir(tmp_path) == ["trace.json"] and path.read_text() == "old"
    with pytest.raises(FileNotFoundError):
        hal.Profile().save(tmp_path / "absent" / "trace.json")


def test_F2_finalize_profile_writes_too(fake, tmp_path):
    hal.start_profile()
    hal.zeros(8, hal.int32, fake)
    events = hal.finalize_profile(tmp_path / "trace.pickle")
    assert pickle.loads((tmp_path / "trace.pickle").read_bytes()) == events
    assert [one.kind for one in events][:2] == ["alloc", "fill"]


PROGRAM = f"""
import os, sys
sys.path.append({str(Path(__file__).parents[1])!r})
import hal_core as hal
from fake_backend import FakePlugin
hal.Device.register_plugin("FAKE", FakePlugin())
hal.zeros(8, hal.int32, "FAKE").numpy()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.parametrize("named", ["trace.json", "~/trace.json"])
def test_F1_the_environment_names_a_file(named, tmp_path):
    """It is where the program began, and a forked child leaves it to its parent."""
    code = PROGRAM + "os.makedirs('other'); os.chdir('other')\nif os.fork(): os.wait()\n"
    done = run(code, cwd=tmp_path, HAL_PROFILE=named, HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads((tmp_path / "trace.json").read_text())
    check(document)
    assert "copyout" in {one["name"] for one in document["traceEvents"]}
    assert not os.listdir(tmp_path / "other")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has another exit code")
def test_F1_ctrl_c_ends_a_profiled_program_as_any_other(tmp_path):
    done = run(PROGRAM + "raise KeyboardInterrupt\n", cwd=tmp_path, HAL_PROFILE="trace.json")
    assert done.returncode == -signal.SIGINT and (tmp_path / "trace.json").exists()


def test_a_trace_that_cannot_be_written_is_elsewhere_and_stderr_says_so(tmp_path):
    done = run(PROGRAM, cwd=tmp_path, HAL_PROFILE="absent/trace.json", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("hal: profile.save: the file cannot be written: No such file")
    (line,) = done.stderr.splitlines()
    check(json.loads(Path(line.rpartition(" The trace is in ")[2]).read_text()))


def test_F2_the_command_writes_a_trace(own_sys, tmp_path, capsys, monkeypatch):
    hal.Device.register_plugin("FAKE", FakePlugin())
    program, path = tmp_path / "program.py", tmp_path / "trace.json"
    program.write_text(f"{PROGRAM}os.chdir('/')\n")
    monkeypatch.chdir(tmp_path)
    try:
        assert main(["profile", "-o", "trace.json", str(program)]) == 0
    finally:
        hal.Device["FAKE"].close()
    check(json.loads(path.read_text()))
    ran = tmp_path / "ran"
    program.write_text(f"open({str(ran)!r}, 'w')")
    for wrong in ("trace.txt", "absent/trace.json", "."):
        monkeypatch.chdir(tmp_path)
        assert main(["profile", "-o", wrong, str(program)]) == 2
    assert "hal: profile: " in capsys.readouterr().err and not ran.exists()

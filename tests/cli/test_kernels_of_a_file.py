"""Test `hal bench FILE:KERNEL` and `hal try FILE`, which make up the arguments of a launch."""

import json
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from fake_site import FakeSite

import hal_core as hal
from hal_core.cli import main
from hal_kernel.cli import arguments, bench, try_kernels

pytestmark = pytest.mark.partial

needs_cpu = pytest.mark.skipif(find_spec("hal_cpu") is None, reason="hal-cpu is not installed here")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILE = """
import numpy as np
import hal_core as hal

ORDER = np.array([3, 1, 2], "i4")

@hal.kernel
def scale(y: hal.Ptr[hal.float32], a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * y[i]

@hal.kernel
def transpose(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        y[i * h + j] = x[j * w + i]

@hal.kernel
def compact(
    y: hal.Ptr[hal.int32], count: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32
):
    i = hal.global_idx(0)
    if i < n and x[i] % 3 == 0:
        y[hal.atomic_add(count, 0, 1)] = i

def make_layer(columns):
    @hal.kernel
    def layer(y: hal.Ptr[hal.float32], rows: hal.int32):
        i = hal.global_idx(0)
        j = hal.global_idx(1)
        if i < columns and j < rows:
            y[j * columns + i] = 1.0
    return layer

text = hal.Source("half", "...", "y: float32*, n: int32", language="c")
"""
FAULTS = {  # a line; what is said of it; what is known of the launch where it faults
    "before": ("y[hal.global_idx(0) - 1] = 1", "a write of 'y' .*got -1", "threads = 100"),
    "unguarded": (
        "y[hal.global_idx(0)] = 1", "a write of 'y' .*got 100; limit",
        "y = 100 x int32, threads = 100",
    ),
    "racing": (
        "y[0] = hal.global_idx(0)", "a race for element 0 of 'y'", "y = 1 x int32, threads = 100"
    ),
    "claiming": ("assert y[0] == 7, 'no seven'", "no seven, in thread", "threads = 1"),
    "unknown": ("y[0] = yy[0]", "name 'yy' is not defined", ""),
}  # fmt: skip


@pytest.fixture
def file(tmp_path, own_sys):
    (tmp_path / "kernels.py").write_text(FILE, encoding="utf-8")
    return str(tmp_path / "kernels.py")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(bench, "_MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(bench, "_ENOUGH_NBYTES", 5000)


@pytest.fixture
def checked(monkeypatch):
    """The CPU finds every index that is out of bounds."""
    hal.Device["CPU"].close()
    monkeypatch.setenv("HAL_CHECK", "1")
    yield
    hal.Device["CPU"].close()


def benched(capsys, *given):
    assert main(["bench", *given, "--device", "CPU", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# -- bench


@needs_cpu
def test_bench_prints_a_row_for_each_device(file, quick, capsys):
    assert main(["bench", f"{file}:scale", "--device", "cpu", "--device", "CPU:0"]) == 0
    launch, heads, *rows, made_up = capsys.readouterr().out.splitlines()
    assert made_up.startswith("Made up: the data of y, a, n. Times may depend on it")
    assert launch == "scale: y = 1024 x float32, a = 1.0, n = 1024, threads = 1024"
    assert heads.split() == ["device", "hardware", "time", "GB/s", "Gop/s"]
    assert [row.split()[0] for row in rows] == ["cpu", "CPU:0"]
    assert all(re.search(r"\d (us|ms|s) +\d+\.\d\d +\d+\.\d\d *$", row) for row in rows)


@needs_cpu
@pytest.mark.parametrize(
    ("given", "arguments", "threads", "nbytes", "operations"),
    [(["scale"], {"y": 1024, "a": 1.0, "n": 1024}, [1024], 8192, 1024),
     (["scale", "n=1e3"], {"y": 1000, "a": 1.0, "n": 1000}, [1000], 8000, 1000),
     (["scale", "n=len(ORDER)", "a=-0.5"], {"y": 3, "a": -0.5, "n": 3}, [3], 24, 3),
     (["scale", "n=5", "y=7"], {"y": 7, "a": 1.0, "n": 5}, [5], 40, 5),
     (["transpose", "w=20", "h=30"], {"y": 600, "x": 600, "w": 20, "h": 30}, [20, 30], 4800, 0),
     (["compact", "x=ORDER", "n=3"], {"y": 1, "count": 1, "x": 3, "n": 3}, [3], 24, 1),
     (["make_layer(50)", "rows=3"], {"y": 150, "rows": 3}, [50, 3], 600, 0)],
    ids=str,
)  # fmt: skip
def test_bench_makes_up_what_is_not_given(
    file, given, arguments, threads, nbytes, operations, quick, capsys
):
    found = benched(capsys, f"{file}:{given[0]}", *given[1:])
    assert found["arguments"] == arguments and found["geometry"] == {"threads": threads}
    assert (found["nbytes"], found["operations"]) == (nbytes, operations)
    (row,) = found["devices"]
    assert row["device"] == "CPU" and row["launches"] == 3 and row["why"] == ""
    assert 0 < row["shortest"] <= row["seconds"]


@needs_cpu
def test_bench_takes_arguments_anywhere(file, quick, capsys):
    found = benched(capsys, "--block", "512", f"{file}:scale", "--threads", "16", "n=9", "a=2")
    assert found["geometry"] == {"threads": [16], "block": [512]}
    assert found["arguments"] == {"y": 9, "a": 2.0, "n": 9}
    found = benched(capsys, f"{file}:transpose", "--grid", "2x3", "--block", "4x4", "w=8", "h=12")
    assert found["geometry"] == {"grid": [2, 3], "block": [4, 4]}
    assert found["nbytes"] == 2 * 4 * 96


@needs_cpu
def test_bench_gives_each_launch_the_same_data(file, quick, checked, capsys):
    """A second launch on the results of the first would write beyond the end."""
    found = benched(capsys, f"{file}:compact", "n=300")
    assert found["arguments"] == {"y": 100, "count": 1, "x": 300, "n": 300}


def test_bench_says_why_a_device_has_no_times(file, tmp_path):
    site = FakeSite(tmp_path / "site")
    site.backend("ACC")
    site.distribution("hal_kernel", "[hal.commands]\nbench = hal_kernel.cli.bench\n")
    given = ["bench", f"{file}:scale", "n=9", "--device", "ACC"]
    done = site.run(f"from hal_core.cli import main; sys.exit(main({given}))")
    launch, why, _ = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "") and launch.startswith("scale: ")
    assert why.startswith("ACC: ") and "compile" in why


def test_a_device_that_is_not_there_is_told_alike_by_every_command(file, capsys):
    for command in (
        ["bench", f"{file}:scale", "--device", "NOPE"],
        ["render", f"{file}:scale", "--device", "NOPE"],
        ["devices", "NOPE"], ["doctor", "NOPE"], ["check", "NOPE"],
    ):  # fmt: skip
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert out == "" and "no installed backend has this name (got 'NOPE')" in err


@needs_cpu
def test_bench_of_a_source_needs_every_argument(file, quick, capsys):
    assert main(["bench", f"{file}:text", "n=5"]) == 2
    said = capsys.readouterr().err
    assert said.endswith("does not tell which arguments suit it. Give y= --threads too.\n")
    path = Path(file)
    text = "void half(const hal_thread *t, float *y, int32_t n) { y[n - 1] = 1; }"
    path.write_text(FILE.replace('"..."', repr(text)), encoding="utf-8")
    code = main(["bench", f"{file}:text", "n=5", "y=5", "--threads", "1", "--device", "CPU"])
    said = capsys.readouterr().out
    if code:  # no compiler for C
        pytest.skip(said)
    assert said.startswith("half: y = 5 x float32, n = 5, threads = 1\n")
    path.write_text(FILE.replace("y: float32*, n", "y: image2d, n"), encoding="utf-8")
    assert main(["bench", f"{file}:text", "y=5"]) == 2
    assert "it makes no images (got 'y')" in capsys.readouterr().err


@pytest.mark.parametrize("name", ['"half"', "None", '{"half": None}'])
def test_bench_of_a_source_without_a_signature_asks_for_it(tmp_path, name, capsys):
    path = tmp_path / "text.py"
    path.write_text(f'import hal_core as hal\nk = hal.Source({name}, "...", language="c")\n')
    for given in (["n=5"], ["--threads", "4"]):
        assert main(["bench", str(path), *given]) == 2
        assert capsys.readouterr().err.endswith("Give hal.Source one name and a signature.\n")


FRONT_END = """
import hal_core as hal

class Program:  # what another front end makes of its own language
    def __init__(self, text):
        self.text = text

    def __hal_source__(self, device):
        return hal.Source("half", self.text, "y: float32*, n: int32", language="opencl")

half = Program("kernel void half_(global float *y, int n) { y[n - 1] = 1; }".replace("_", ""))
broken = Program(None)
"""


@needs_cpu
def test_commands_take_the_kernels_of_another_front_end(tmp_path, monkeypatch, capsys):
    path = tmp_path / "front.py"
    path.write_text(FRONT_END, encoding="utf-8")
    monkeypatch.setenv("HAL_DEVICE", "CPU")
    assert main(["render", f"{path}:half"]) == 0
    assert capsys.readouterr().out.startswith("kernel void half(global float *y, int n)")
    assert main(["try", f"{path}:half"]) == 0
    assert main(["try", f"{path}:half", "n=5"]) == 0
    assert "text in opencl" in capsys.readouterr().out
    assert main(["bench", f"{path}:half", "n=5"]) == 2
    assert capsys.readouterr().err.endswith("Give y= --threads too.\n")
    assert main(["bench", f"{path}:half", "n=5", "y=5", "--threads", "1", "--device", "CPU"]) == 1
    assert "opencl" in capsys.readouterr().out  # CPU takes no text in OpenCL C, and says so
    assert main(["render", f"{path}:broken"]) == 2
    assert "Source" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["scale", "b=1"], "scale: no such parameter (got 'b'). Give NAME=VALUE for y, a, n."),
        (["scale", "n"], "a parameter without a value (got 'n'). Give NAME=VALUE for y, a, n."),
        (["scale", "n=1.5"], "value 'n' is a float where an integer is expected"),
        (["scale", "n=1e99"], "value 'n' is out of range"),
        (["scale", "n=nn"], "load kernel: nn failed: NameError"),
        (["scale", "y=-1"], "'y' takes a number of elements or a numpy array (got '-1'"),
        (["scale", "y=ORDER"], "numpy array (got 'int32 array'; expected float32)"),
        (["scale", "n=9", "y=8"], "out of bounds: a read of 'y'"),
        (["compact", "--grid", "3"], "nothing says how large the grid's blocks are"),
        (["scale", "n="], "scale: a parameter without a value (got 'n')"),
        (["scale", "n=1", "n=2"], "scale: two values of one parameter (got 'n')"),
        (["scale", "n=inf"], "value 'n' is a float where an integer is expected"),
        (["scale", "y=inf"], "'y' takes a number of elements"),
        (["scale", "y=nan"], "'y' takes a number of elements"),
        (["scale", "y=True"], "'y' takes a number of elements"),
        (["scale", "y=1e15"], "'y' is too large for "),
        (["scale", "y=10**9999"], "'y' is too large for "),
        (["scale", "n=0"], "(got 'n=0'). Give n of 1 or more, or --threads."),
        (["scale", "n=-1"], "(got 'n=-1'). Give n of 1 or more, or --threads."),
        (["scale", "--threads", "0"], "scale: the launch has no threads"),
        (["scale", "--block", "0"], "scale: threads cannot run in blocks of none"),
        (["scale", "--threads", "4", "--block", "0"], "threads cannot run in blocks of none"),
        (["scale", "--grid", "0", "--block", "4"], "scale: the launch has no threads"),
        (["text", "y=1", "n=1", "--threads", "0"], "half: the launch has no threads"),
    ],
    ids=str,
)
def test_bench_and_try_say_what_is_wrong(file, given, said, capsys):
    """One parser serves both; what is wrong with the arguments is no fault of a kernel."""
    assert main(["bench", f"{file}:{given[0]}", *given[1:]]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err
    if "out of bounds" not in said and given[0] not in ("text", "compact"):
        assert main(["try", f"{file}:{given[0]}", *given[1:]]) == 2
        out, err = capsys.readouterr()
        assert out == "" and said in err


def test_sizes_are_refused_that_a_command_would_take_long_for(file, monkeypatch, capsys):
    """The interpreter keeps a record of each element; `bench` copies all arrays together."""
    monkeypatch.setattr(try_kernels, "_MOST", 200)
    array, threads = "'y' is too large", "too many threads"
    for given, problem in (("y=201", array), ("y=np.zeros(201, 'f4')", array), ("n=201", threads)):
        monkeypatch.setattr(try_kernels, "sample", None)  # which takes time for each thread
        assert main(["try", f"{file}:scale", given]) == 2
        said = f"{problem} for the interpreter (got 201; limit 200)"
        assert said in capsys.readouterr().err
    monkeypatch.setattr(arguments, "_room", lambda: 64)
    assert main(["bench", f"{file}:transpose", "y=10", "x=10", "w=3", "h=3"]) == 2
    said = "'x' is too large for this machine's memory (got 10; limit 6)"
    assert said in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("command", ["try", "bench", "render", "profile"])
def test_a_pipe_is_no_file_that_is_missing(command, tmp_path, capsys):
    path = tmp_path / "pipe.py"
    os.mkfifo(path)
    assert main([command, str(path)]) == 2
    said = capsys.readouterr().err
    assert "a pipe or a device, not a file" in said and "Did you mean" not in said


def test_numbers_that_are_not_finite_and_no_arguments(file, capsys):
    for text in ("inf", "-inf", "nan"):
        assert main(["try", f"{file}:scale", f"a={text}"]) == 0
        assert f"a = {text}," in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["bench"])
    assert capsys.readouterr().err.endswith("arguments are required: FILE[:KERNEL]\n")


# -- try


def test_try_runs_every_kernel_of_a_file(file, capsys):
    assert main(["try", file]) == 0
    lines = (line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    found = {name: rest.strip() for name, rest in lines}
    assert found["kernel"].split("  ")[0] == "result"
    assert found["scale"].startswith("no fault") and "n = 100, threads = 100" in found["scale"]
    assert found["transpose"].endswith("w = 12, h = 12, threads = 12 x 12")
    assert found["compact"].startswith("no fault")
    assert found["text"].startswith("not run") and found["text"].endswith("text in c")


@pytest.mark.parametrize("limit", ["hal.float32(t)", "math.inf", "far"])
def test_a_comparison_with_no_finite_number_limits_no_threads(limit, tmp_path, capsys):
    path = tmp_path / "endless.py"
    text = """
import math
import hal_core as hal
@hal.kernel(block=8)
def f(y: hal.Ptr[hal.float32], far: hal.float32):
    t = hal.thread_idx(0)
    if hal.float32(hal.global_idx(0)) <= LIMIT:
        y[hal.global_idx(0)] = hal.float32(t)
"""
    path.write_text(text.replace("LIMIT", limit), encoding="utf-8")
    assert main(["try", f"{path}:f", "y=104", "far=float('inf')"]) == 0
    assert "threads = 100" in capsys.readouterr().out


@pytest.mark.parametrize("name", FAULTS)
def test_try_finds_a_fault(name, file, capsys):
    line, said, launched = FAULTS[name]
    with open(file, "a", encoding="utf-8") as added:
        added.write(f"\n@hal.kernel\ndef {name}(y: hal.Ptr[hal.int32]):\n    {line}\n")
    assert main(["try", file]) == 1
    table, _, fault = capsys.readouterr().out.partition("\n\n")
    rows = {row.split()[0]: row.split(maxsplit=2)[1:] for row in table.splitlines()}
    assert rows[name][0] == "fault" and rows["scale"][0] == "no"
    assert "".join(rows[name][1:]).strip() == launched
    assert fault.startswith(f"{name}: ") and re.search(said, fault)


# Kernels that need data which another kernel, or the caller, has computed.
RELYING = {"fft": {"combine"}, "sort": {"move"}}


@pytest.mark.parametrize("example", ["saxpy", "matmul", "softmax", "fft", "sort", "sparse"])
def test_try_finds_no_fault_in_the_examples(example, own_sys, capsys, monkeypatch):
    monkeypatch.setenv("HAL_DEVICE", "PYTHON")  # saxpy.py runs whole: it has no `main`
    relying = RELYING.get(example, set())
    assert main(["try", str(EXAMPLES / f"{example}.py")]) == (1 if relying else 0)
    table = capsys.readouterr().out.partition("\n\n")[0]
    found = dict(line.split()[:2] for line in table.splitlines()[1:])
    assert found and {name for name, result in found.items() if result == "fault"} == relying


def test_try_of_a_kernel_that_relies_on_its_numbers(capsys):
    assert main(["try", f"{EXAMPLES}/fft.py:combine", "done=8", "half=32"]) == 0
    assert "signals = 12, threads = 32 x 12" in capsys.readouterr().out


def test_try_takes_arguments_for_one_kernel(file, capsys):
    assert main(["try", f"{file}:transpose", "w=5", "h=7"]) == 0
    launch = "x = 35 x int32, w = 5, h = 7, threads = 5 x 7"
    assert launch in capsys.readouterr().out
    assert main(["try", f"{file}:transpose", "--threads", "5x7"]) == 0
    assert launch in capsys.readouterr().out
    assert main(["try", f"{file}:transpose", "w=5", "h=7", "x=34"]) == 1
    assert "a read of 'x'" in capsys.readouterr().out
    assert main(["try", f"{file}:make_layer(7)"]) == 0
    assert "threads = 7 x 12" in capsys.readouterr().out
    assert main(["try", file, "n=5"]) == 2
    assert "arguments are for one kernel, and" in capsys.readouterr().err
    assert main(["try", "none.py"]) == 2
    assert "no such file (got 'none.py')" in capsys.readouterr().err


def test_try_refuses_a_size_that_is_none(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["try", "k.py:a", "--block", "8y8"])
    err = capsys.readouterr().err
    assert caught.value.code == 2 and err.startswith("usage: hal try ")
    assert "expected 256 or 16x16 (got '8y8')" in err


@pytest.mark.parametrize("target", ["k.py", "folder/k.py:a"])
def test_check_of_a_file_says_that_it_is_try_now(target, capsys):
    assert main(["check", target]) == 2
    assert f"Run hal try {target}" in capsys.readouterr().err

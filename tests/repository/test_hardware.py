"""The page that `nox -s hardware` writes about a device, and what it says of failures."""

import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from counts import calls

import hal_core as hal

ROOT = Path(__file__).resolve().parents[2]
SIMULATOR = ROOT / "tests" / "simulators" / "cuda"


def _load(name, path, **how):
    """Without the checkout on the path, which holds more than what is wanted."""
    spec = importlib.util.spec_from_file_location(name, path, **how)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_load("bench", ROOT / "bench" / "__init__.py", submodule_search_locations=[str(ROOT / "bench")])

from bench import hardware, language, measure, report  # noqa: E402
from bench.found import Ended, Example, Kit, Run, Table  # noqa: E402

END = Ended(0, 1.5, "said\n")
BROKEN = Ended(3, 0.5, "Traceback\nValueError: | ```\n")
REPORT = {
    "seconds": 2.0,
    "verdict": "CUDA conforms: 5 tests pass, in 2 s.",
    "chapters": {"Event": {"passed": 5, "failed": 0, "skipped": 2, "known gap": 0, "seconds": 1.0}},
    "skipped": [{"test": "TestBuffer::test_B9", "why": "it declares no\nmore"}],
}
INFO = hal.DeviceInfo(
    name="CUDA", kind="gpu", title="NVIDIA H200 (SXM)", memory_nbytes=1 << 37, arch="sm_90",
    compute_units=132, host_visible=False,
    limits=hal.Limits((1, 1, 1), 1, (1, 1, 1), 0, 16, 1 << 30),
)  # fmt: skip
ROWS = [report.Row("launch", 2e-6, "bare", 1.9e-6, 0.95, 0.77), report.Missing("sizes", "smaller")]


def _run(**changed):
    found = Run(
        info=INFO, quick=False, absent={"gcc": "not installed"}, facts=[("Python", "3.12.1")],
        kits=[Kit(pair, END, REPORT) for pair in ("nvrtc", "ptx")],
        examples=[Example("matmul", ("--device", "CUDA"), END)],
        tables=[Table("benchmarks", END, ROWS)], pending=[],
    )  # fmt: skip
    return found._replace(**changed)


# -- end to end


@pytest.mark.full
def test_a_page_of_the_software_driver(tmp_path):
    """Everything but the long examples and most of the kit, with every compiler that serves."""
    if find_spec("hal_cuda") is None or find_spec("cuda") is None:
        pytest.skip("hal-cuda is not installed here")
    build = _load("hardware_build", SIMULATOR / "build.py")
    try:
        kept = os.environ.get("SIM_CUDA_BUILD")  # by another session of this run
        # Where hal-cuda's own tests keep it, so that it is built once.
        shared = Path(tempfile.gettempdir()) / f"hal-simulators-{os.getuid()}" / "cuda"
        folder = Path(build.build(Path(kept or shared))).parent
    except build.NoCompiler as error:
        pytest.skip(f"the software driver cannot be built: {error}")
    done = _python(
        tmp_path, "-m", "bench.hardware", "CUDA", "--quick", "--into", "pages/new",
        "--examples", str(ROOT / "examples"),
        LD_LIBRARY_PATH=str(folder), SIM_CUDA_DRIVER="99.0",
    )  # fmt: skip
    (path,) = (tmp_path / "pages" / "new").iterdir()
    text = path.read_text(encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr + text
    assert path.name == "software-cuda-device-0.md" and text.startswith(
        "# Software CUDA device 0\n"
    )
    assert "**This is a software driver, not a GPU.**" in text and "Everything below passed" in text
    assert text.count("CUDA passes the ") >= 1 and "| hal-core | " in text
    for name in ("mandelbrot", "matmul", "reduction", "softmax"):
        assert f"| {name}.py | --device CUDA --" in text
    for name in ("cluster", "digits", "edges", "heat", "saxpy"):
        assert f"| {name}.py |  | not run: " in text
    for what in (
        "launch, ", "allocate ", "copy in 4 KiB, pinned", "saxpy over ", "tiled matmul 16 ",
    ):  # fmt: skip
        assert f"\n| {what}" in text
    assert "| 0.77 x |" in text and "Sizes were made smaller: arrays up to " in text


def _python(folder, *arguments, **environment):
    """In a process that finds `bench`, and nothing else of the checkout."""
    (folder / "bench").symlink_to(ROOT / "bench")
    own = {"PYTHONPATH": str(folder), "HAL_CACHE_DIR": str(folder / "cache"), "HAL_REQUIRE": ""}
    return subprocess.run(
        [sys.executable, *arguments], env=os.environ | own | environment, cwd=folder,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


# -- what it says


@pytest.mark.parametrize(
    ("changed", "failure"),
    [({"kits": [Kit("ptx", BROKEN, None)]}, "the kit with ptx"),
     ({"kits": [Kit("ptx", Ended(1, 1, ""), REPORT)]}, "the kit with ptx"),
     ({"kits": []}, "no compiler serves"),
     ({"examples": [Example("edges", (), BROKEN)]}, "edges.py"),
     ({"tables": [Table("benchmarks", BROKEN, [])]}, "benchmarks"),
     ({"tables": [Table("benchmarks", Ended(1, 1, ""), ROWS)]}, "benchmarks")],
    ids=["kit died", "kit failed", "no kit", "example", "bench died", "bench failed"],
)  # fmt: skip
def test_what_failed_is_on_the_page_and_fails_the_run(
    changed, failure, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(hardware, "everything", lambda *given: _run(**changed))
    given = ["CUDA", "--into", str(tmp_path / "a" / "b"), "--examples", "nowhere"]
    assert hardware.main(given) == 1
    assert f"failed: {failure}" in capsys.readouterr().out
    text = (tmp_path / "a" / "b" / "nvidia-h200-sxm.md").read_text(encoding="utf-8")
    assert f"**Failed: {failure}.**" in text
    if BROKEN in [part.ended for found in changed.values() for part in found]:
        assert "ValueError: | '''" in text  # its last words, which do not end the block


# -- rows


def test_a_score_is_a_speed():
    times = measure.Times({"hal": [2.0, 2.0, 2.0, 2.0, 8.0, 8.0], "C": [1.0] * 6})
    row = report.beside("work", times, "C", 0.4)
    assert row == report.Row("work", 2.0, "C", 1.0, 0.5, 0.4) and row.met
    assert not report.beside("work", times, times.allow("C", 0.0), 0.6).met
    assert report.beside("work", times, times.allow("C", 1.0), 1.0).score == 1.0


def test_who_runs_twice_in_a_row_gains_no_score_by_it():
    warm, cold = 1.0, 1.2  # who is second in one round is first in the next, and finds its data
    times = measure.Times({"hal": [cold, warm] * 3, "C": [warm, cold] * 3})
    assert times.ratio("C", "hal") == 1.0
    runs = []
    tasks = {name: measure.call(lambda name=name: runs.append(name)) for name in ("hal", "C")}
    times = measure.compare(tasks, measure.Effort(3, 0.0))
    assert runs[-8:] == ["C", "hal", "hal", "C"] * 2
    assert [len(spent) for spent in times.rounds.values()] == [4, 4]


def test_fifty_lines_take_few_calls_from_python_to_llvm():
    def front_end():
        return language.LLVMRenderer().render(language.make_fifty_lines().lower())

    front_end()  # writes the formulas of its functions, once for all kernels
    assert calls(front_end) < 31_000

"""The examples run, those that differ in more than a kernel as a user would: in a process."""

import functools
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from run_python import run

import hal_core as hal

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = os.environ.get("HAL_REQUIRE", "").split(",")


@functools.cache
def _have(family):
    """PoCL from PyPI is older than some processors, and then opens no device."""
    try:
        return family in REQUIRED or bool(hal.Device[family])
    except (hal.UnknownDevice, hal.DeviceUnavailable):
        return False


def _run(example, folder, *arguments, **environment):
    environment = {"HAL_CACHE_DIR": str(folder)} | environment
    done = run(ROOT / "examples" / example, *arguments, cwd=folder, **environment)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture
def printed(monkeypatch, capsys):
    """Run an example in this process, whose imports and devices all share."""

    def run(example, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{example}.py", *arguments])
        code = _example(example).main()
        said = capsys.readouterr()
        assert code == 0, said
        return said.out

    return run


needs_cpu = pytest.mark.skipif(
    not _have("CPU"), reason="hal-cpu is not installed in this environment"
)


@needs_cpu
def test_M1_bands_of_two_devices_are_the_plate_of_one(tmp_path):
    """Without a cluster; hal-ray's tests run it on one."""
    pytest.importorskip("PIL.Image", reason="pillow is not installed here")
    devices = ("--devices", "CPU,CPU:1")
    printed = _run("cluster.py", tmp_path, *devices, HAL_CPU_DEVICES="2")
    assert "CPU + CPU:1 differ from CPU by 0\n" in printed and (tmp_path / "cluster.png").exists()


@needs_cpu
def test_heat_is_faster_as_a_graph(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed here")
    printed = _run("heat.py", tmp_path, "--device", "CPU", "--out", "pictures")
    ratio = re.search(r"^CPU +eager .* ms   replayed .* ms   (.*) times as fast$", printed, re.M)
    assert ratio is not None and float(ratio[1]) > 1  # 6 on a quiet machine
    with image.open(tmp_path / "pictures" / "heat-CPU.png") as picture:
        assert picture.size == (1024, 400) and len(picture.getcolors(1 << 20)) > 100


class Sizes(NamedTuple):
    """Arguments of an example that end it soon, also where every access is watched."""

    soon: str
    watched: str


EXAMPLES = {
    "matmul": Sizes("--size 50", "--size 35"), "reduction": Sizes("--count 70000", "--count 3000"),
    "connected_components": Sizes("--size 60", "--size 20"),
    "softmax": Sizes("--rows 20 --columns 300", "--rows 5 --columns 300"),
    "mandelbrot": Sizes("--size 50", "--size 15"), "sort": Sizes("--count 5000", "--count 1500"),
    "fft": Sizes("--signals 20 --size 256", "--signals 3 --size 64"),
    "sparse": Sizes("--size 20", "--size 6"),
}  # fmt: skip


@needs_cpu
@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("device", ["CPU", pytest.param("OPENCL", marks=pytest.mark.full)])
def test_an_example_finds_its_answer_right(device, example, printed):
    """Each compares with numpy, and returns 1 where they differ."""
    if not _have(device):
        pytest.skip(f"hal-{device.lower()} is not installed here")
    given = EXAMPLES[example].soon.split()
    assert printed(example, "--device", device, *given).startswith(f"{device}: ")


@needs_cpu
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_sees_that_its_answer_is_wrong(example, monkeypatch):
    """Its kernels do nothing here."""

    def idle(*buffers, **how):
        for buffer in buffers:
            if not buffer.is_allocated:
                buffer.fill(0)
        return 1.0

    module, device = _example(example), hal.Device["CPU"]
    monkeypatch.setattr(device, "compile", lambda kernel: idle)
    numbers = np.random.default_rng(0).standard_normal((20, 30), dtype=np.float32)
    arguments = {
        "matmul": lambda: (numbers, numbers.T), "reduction": lambda: (numbers.reshape(-1),),
        "connected_components": lambda: (np.ones((5, 5), "u1"), np.ones((5, 5), "i4")),
        "softmax": lambda: (numbers,), "mandelbrot": lambda: (np.ones((5, 5), "i4"), None),
        "sort": lambda: (np.array([3, 1, 2], "u4"),), "fft": lambda: module.make_signals(2, 64),
        "sparse": lambda: (module.make_plate(4), np.ones(16, "f4")),
    }  # fmt: skip
    assert module.run(device, *arguments[example]()) is False


@needs_cpu
@pytest.mark.full
@pytest.mark.parametrize("example", ["saxpy", *EXAMPLES])
def test_an_example_does_nothing_undefined(example, tmp_path):
    """And finds its answer right where every access is watched."""
    sizes = EXAMPLES.get(example)
    given = ["--device", "CPU", *sizes.watched.split()] if sizes else []
    assert _run(f"{example}.py", tmp_path, *given, HAL_CHECK="1")


@needs_cpu
@pytest.mark.full  # `nox -s demo` runs it, too
def test_digits_learns(tmp_path):
    for needed in ("sklearn", "PIL"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed here")
    printed = _run("digits.py", tmp_path, "--device", "CPU", "--out", "pictures")
    assert "CPU" in printed
    found = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert found == ["cpu-digits.png"]


@needs_cpu
@pytest.mark.parametrize("device", ["CPU", "OPENCL"])
def test_F3_weights_of_a_safetensors_file_are_read(device, tmp_path, printed):
    if find_spec("safetensors") is None or not _have(device):
        pytest.skip("safetensors or the backend is not installed here")
    said = printed("weights", "--device", device)
    assert said.startswith(f"{device}: 3 tensors, read right\n    and computed with, right")
    from safetensors.numpy import save_file

    save_file({"a": np.ones((2, 3), "f4"), "b": np.zeros(5, "?")}, tmp_path / "model")
    said = printed("weights", str(tmp_path / "model"), "--device", device)
    assert said == f"a: (2, 3) float32 on {device}\nb: (5,) bool on {device}\n"


@needs_cpu
@pytest.mark.full
@pytest.mark.parametrize("devices", ["CPU,CPU:1", "CPU,OPENCL"])
def test_M1_digits_learns_on_two_devices_together(devices, tmp_path):
    """It ends with 1 where fewer digits are read right than one device reads."""
    if (
        find_spec("sklearn") is None
        or find_spec("PIL") is None
        or not _have(devices.rpartition(",")[2].partition(":")[0])
    ):
        pytest.skip("scikit-learn, Pillow or a backend is not installed here")
    printed = _run("digits.py", tmp_path, "--devices", devices, HAL_CPU_DEVICES="2")
    assert devices.replace(",", "+") in printed


# -- the kernels


@functools.cache
def _example(name):
    return SimpleNamespace(**run_path(str(ROOT / "examples" / f"{name}.py")))


def test_the_example_backend_renders_kernels(monkeypatch):
    """Its device needs a driver of Vulkan, its renderer nothing."""
    monkeypatch.syspath_prepend(ROOT / "examples" / "wgpu-backend")
    from hal_wgpu.wgsl import WGSLRenderer

    from hal_testing.conformance.arithmetic import sample_of_operations
    from hal_testing.conformance.functions import sample_of_derived, sample_of_math

    renderer = WGSLRenderer()
    for made in (sample_of_operations, sample_of_math, sample_of_derived):
        kernel = made(hal.float32).kernel.lower()
        assert f"fn hal_{kernel.name}(" in renderer.render(kernel)

"""The examples run, as a user would run them: in a process of their own. And their kernels give the
interpreter's answer on every device and every compiler."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import hal_core as hal
from hal_kernel.interpreter import interpret

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = os.environ.get("HAL_REQUIRE", "").split(",")


def _have(family: str) -> bool:
    return find_spec(f"hal_{family.lower()}") is not None or family in REQUIRED


def _run(example: str, folder: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / example), *arguments],
        env=os.environ | {"HAL_CACHE_DIR": str(folder)} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


needs_cpu = pytest.mark.skipif(
    not _have("CPU"), reason="hal-cpu is not installed in this environment"
)


@needs_cpu
def test_M1_bands_of_two_devices_are_the_plate_of_one(tmp_path: Path) -> None:
    """Without a cluster; hal-ray's tests run it on one."""
    pytest.importorskip("PIL.Image", reason="pillow is not installed here")
    devices = ("--devices", "CPU,CPU:1")
    printed = _run("cluster.py", tmp_path, *devices, HAL_CPU_DEVICES="2")
    assert "CPU + CPU:1 differ from CPU by 0\n" in printed and (tmp_path / "cluster.png").exists()


@needs_cpu
def test_heat_is_faster_as_a_graph(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed here")
    printed = _run("heat.py", tmp_path, "--device", "CPU", "--out", "pictures")
    ratio = re.search(r"^CPU +eager .* ms   replayed .* ms   (.*) times as fast$", printed, re.M)
    assert ratio is not None and float(ratio[1]) > 1  # 6 on a quiet machine
    with image.open(tmp_path / "pictures" / "heat-CPU.png") as picture:
        assert picture.size == (1024, 400) and len(picture.getcolors(1 << 20)) > 100


@needs_cpu
def test_saxpy_prints_the_right_numbers(tmp_path: Path) -> None:
    for _ in range(2):  # compiled, then taken from the cache
        printed = _run("saxpy.py", tmp_path)
        numbers = r"y = \[1\.000e\+00 3\.000e\+00 5\.000e\+00 .* 2\.047e\+03\]"
        assert re.fullmatch(rf"{numbers}, in \d+\.\d us on CPU\n", printed)


@needs_cpu
@pytest.mark.parametrize(
    ("example", "size"),
    [
        ("matmul.py", ("--size", "50")),
        ("reduction.py", ("--count", "70000")),
        ("histogram.py", ("--count", "70000")),
        ("connected_components.py", ("--size", "60")),
        ("softmax.py", ("--rows", "20", "--columns", "300")),
        ("mandelbrot.py", ("--size", "50")),
        ("wave.py", ("--size", "40", "--steps", "30")),
        ("nbody.py", ("--count", "200", "--steps", "3")),
        ("sort.py", ("--count", "5000")),
        ("fft.py", ("--signals", "20", "--size", "256")),
        ("sparse.py", ("--size", "20")),
        ("montecarlo.py", ("--count", "100000")),
    ],
)
def test_an_example_finds_its_answer_right(
    example: str, size: tuple[str, ...], tmp_path: Path
) -> None:
    """Each compares with numpy, and ends with 1 where they differ."""
    assert _run(example, tmp_path, "--device", "CPU", *size).startswith("CPU: ")


@needs_cpu
@pytest.mark.parametrize(
    "example",
    [
        "matmul", "reduction", "histogram", "connected_components", "softmax", "mandelbrot",
        "wave", "nbody", "sort", "fft", "sparse", "montecarlo",
    ],
)  # fmt: skip
def test_an_example_sees_that_its_answer_is_wrong(
    example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernels do nothing here."""

    def idle(*buffers: hal.Buffer, **how: Any) -> float:
        for buffer in buffers:
            if buffer._buf is None:
                buffer.fill(0)
        return 1.0

    module, device = _example(example), hal.Device["CPU"]
    monkeypatch.setattr(device, "compile", lambda kernel: idle)
    numbers = np.random.default_rng(0).standard_normal((20, 30), dtype=np.float32)
    arguments: dict[str, Callable[[], Any]] = {
        "matmul": lambda: (numbers, numbers.T),
        "reduction": lambda: (numbers.reshape(-1),),
        "histogram": lambda: (np.arange(100, dtype="u1"),),
        "connected_components": lambda: (np.ones((5, 5), "u1"), np.ones((5, 5), "i4")),
        "softmax": lambda: (numbers,),
        "mandelbrot": lambda: (np.ones((5, 5), "i4"), None),
        "wave": lambda: (np.ones((9, 9), "u1"), module.reference(np.ones((9, 9), "u1"), 9), 9),
        "nbody": lambda: (module.make_stars(20), 3),
        "sort": lambda: (np.array([3, 1, 2], "u4"),),
        "fft": lambda: module.make_signals(2, 64),
        "sparse": lambda: (module.make_plate(4), np.ones(16, "f4")),
        "montecarlo": lambda: (1000,),
    }
    assert module.run(device, *arguments[example]()) is False


@needs_cpu
@pytest.mark.parametrize(
    ("example", "size"),
    [
        ("saxpy.py", ()),
        ("matmul.py", ("--size", "35")),
        ("reduction.py", ("--count", "3000")),
        ("histogram.py", ("--count", "3000")),
        ("connected_components.py", ("--size", "20")),
        ("softmax.py", ("--rows", "5", "--columns", "300")),
        ("mandelbrot.py", ("--size", "15")),
        ("wave.py", ("--size", "16", "--steps", "5")),
        ("nbody.py", ("--count", "150", "--steps", "1")),
        ("sort.py", ("--count", "1500")),
        ("fft.py", ("--signals", "3", "--size", "64")),
        ("sparse.py", ("--size", "6")),
        ("montecarlo.py", ("--count", "1000")),
    ],
)
def test_an_example_does_nothing_undefined(
    example: str, size: tuple[str, ...], tmp_path: Path
) -> None:
    """And finds its answer right where every access is watched."""
    device = ("--device", "CPU") if size else ()
    assert _run(example, tmp_path, *device, *size, HAL_CHECK="1")


@needs_cpu
def test_digits_learns(tmp_path: Path) -> None:
    for needed in ("sklearn", "PIL"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed here")
    printed = _run("digits.py", tmp_path, "--device", "CPU", "--out", "pictures")
    assert "CPU" in printed
    found = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert found == ["cpu-digits.png", "cpu-loss.png"]


@needs_cpu
@pytest.mark.parametrize("device", ["CPU", "OPENCL"])
def test_F3_weights_of_a_safetensors_file_are_read(device: str, tmp_path: Path) -> None:
    if find_spec("safetensors") is None or not _have(device):
        pytest.skip("safetensors or the backend is not installed here")
    printed = _run("weights.py", tmp_path, "--device", device)
    assert printed.startswith(f"{device}: 3 tensors, read right\n    and computed with, right")
    from safetensors.numpy import save_file

    save_file({"a": np.ones((2, 3), "f4"), "b": np.zeros(5, "?")}, tmp_path / "model")
    printed = _run("weights.py", tmp_path, "model", "--device", device)
    assert printed == f"a: (2, 3) float32 on {device}\nb: (5,) bool on {device}\n"


@needs_cpu
@pytest.mark.parametrize("devices", ["CPU,CPU:1", "CPU,OPENCL"])
def test_M1_digits_learns_on_two_devices_together(devices: str, tmp_path: Path) -> None:
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
def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"example_{name}", ROOT / "examples" / f"{name}.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Launch(NamedTuple):
    """Arguments of one kernel; float results may differ by `tolerance`, relative and absolute."""

    kernel: hal.KernelFunction
    arrays: tuple[np.ndarray[Any, Any], ...]
    vals: tuple[float, ...]
    geometry: dict[str, Any]
    tolerance: float = 1e-5


def _floats(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32).reshape(-1)


def _bytes(seed: int, count: int, end: int) -> Any:
    return np.random.default_rng(seed).integers(0, end, count, dtype=np.uint8)


def _matmul() -> Launch:
    rows, inner, columns = 19, 37, 33
    arrays = (np.zeros(rows * columns, "f4"), _floats(1, rows, inner), _floats(2, inner, columns))
    made = _example("matmul").make_matmul(8)
    return Launch(made, arrays, (rows, inner, columns), {"threads": (columns, rows)})


def _reduce(kernel: str) -> Launch:
    arrays = (np.zeros(3, "f4"), _floats(3, 9000))
    return Launch(getattr(_example("reduction"), kernel), arrays, (9000,), {"grid": 3})


def _histogram() -> Launch:
    module = _example("histogram")
    arrays = (np.ones(256, "u4"), _bytes(4, 20000, 256))
    return Launch(module.histogram, arrays, (20000,), {"grid": -(-20000 // module.SHARE)})


def _components(kernel: str) -> Launch:
    """One round for parts of two pixels each, which is the same whoever comes first."""
    module, pixel = _example("connected_components"), np.arange(30, dtype="i4")
    labels = np.where(pixel % 3 == 2, np.int32(-1), pixel)
    arrays, vals, threads = {
        "begin": ((np.zeros(99, "i4"), _bytes(5, 99, 2)), (99,), 99),
        "spread": ((labels, np.zeros(1, "i4")), (30, 1), (30, 1)),
    }[kernel]
    return Launch(getattr(module, kernel), arrays, vals, {"threads": threads})


def _softmax() -> Launch:
    arrays = (np.zeros(3 * 300, "f4"), 5 * _floats(5, 3, 300))
    return Launch(_example("softmax").softmax, arrays, (300,), {"grid": 3})


def _mandelbrot() -> Launch:
    kernel = _example("mandelbrot").mandelbrot
    return Launch(kernel, (np.zeros(30 * 30, "i4"),), (30, 0.09), {"threads": (30, 30)})


def _wave() -> Launch:
    size = 20
    water = _example("wave").make_pond(size).reshape(-1)
    states = (_floats(16, size, size), _floats(17, size, size))
    return Launch(_example("wave").step, (*states, water), (0.5, size), {"threads": (size, size)})


def _nbody() -> Launch:
    stars = _example("nbody").make_stars(150).reshape(-1)
    return Launch(_example("nbody").push, (np.zeros(600, "f4"), stars), (0.5, 150), {"grid": 2})


def _sort(kernel: str) -> Launch:
    module, n = _example("sort"), 1500
    keys = np.random.default_rng(18).integers(0, 1 << 32, n, dtype=np.uint32)
    digits = (keys >> np.uint32(8)) & np.uint32(15)
    counts = [np.bincount(part, minlength=16) for part in (digits[:1024], digits[1024:])]
    rows = np.stack(counts, axis=1).astype("i4").reshape(-1)  # a row for each value
    before = (np.cumsum(rows) - rows).astype("i4")
    arrays, vals, grid = {
        "scan": ((np.arange(600, dtype="i4"),), (600,), 1),
        "move": ((np.zeros_like(keys), keys, before), (8, n), 2),
    }[kernel]
    return Launch(getattr(module, kernel), arrays, vals, {"grid": grid})


def _fft() -> Launch:
    angles = -np.pi * np.arange(32) / 32
    roots = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype("f4").reshape(-1)
    arrays = (np.zeros(3 * 128, "f4"), _floats(19, 3, 128), roots)
    return Launch(_example("fft").combine, arrays, (8, 32, 3), {"threads": (32, 3)})


def _sparse(kernel: str) -> Launch:
    module, n = _example("sparse"), 49
    x, y, z, rest = (_floats(seed, n) for seed in (20, 21, 22, 23))
    one, other = np.array([0.5], "f4"), np.array([0.75], "f4")
    arrays: dict[str, Any] = {
        "multiply": (np.zeros(n, "f4"), *module.make_plate(7), x),
        "advance": (x, rest, y, z, one, other),
    }
    return Launch(getattr(module, kernel), arrays[kernel], (n,), {"threads": n})


def _montecarlo() -> Launch:
    arrays = (np.zeros(2, "f4"), np.zeros(2, "f4"))
    return Launch(_example("montecarlo").price, arrays, (7,), {"grid": 2}, 1e-4)


ROWS = 21  # of a mini-batch


def _digits(kernel: str) -> Launch:
    """Arguments as in digits.py, of random numbers."""
    x, hidden, labels = (
        _floats(6, ROWS, 64),
        _floats(7, ROWS, 128),
        np.arange(ROWS, dtype="i4") % 10,
    )
    scores, slope = 3 * _floats(8, ROWS, 10), _floats(9, ROWS, 10)
    last = _floats(10, 129, 10)
    order = np.random.default_rng(11).permutation(50).astype("i4")
    stored = (_bytes(12, 50 * 64, 17), _bytes(13, 50, 10), order)
    arrays, vals, threads = {
        "initialise": ((np.zeros(500, "f4"),), (500, 7, 0.25), 500),
        "gather": ((np.zeros_like(x), np.zeros_like(labels), *stored), (20, ROWS), (64, ROWS)),
        "first_layer": ((hidden, x, _floats(14, 65, 128)), (ROWS,), (128, ROWS)),
        "last_layer": ((scores, hidden, last), (ROWS,), (10, ROWS)),
        "loss_gradient": ((slope, np.zeros(1, "f4"), scores, labels), (ROWS,), ROWS),
        "hidden_backward": ((np.zeros_like(hidden), hidden, last, slope), (ROWS,), (128, ROWS)),
        "last_step": ((last, _floats(15, 129, 10), hidden, slope), (ROWS, 0.1), (10, 129)),
        "average": ((np.zeros(500, "f4"), _floats(16, 500)), (500, 0.5), 500),
        "read": ((np.zeros_like(labels), np.zeros(1, "i4"), scores, labels), (ROWS,), ROWS),
    }[kernel]
    return Launch(getattr(_example("digits"), kernel), arrays, vals, {"threads": threads})


LAUNCHES = {
    "matmul": _matmul,
    "sum_blocks": functools.partial(_reduce, "sum_blocks"),
    "max_blocks": functools.partial(_reduce, "max_blocks"),
    "histogram": _histogram,
    "components begin": functools.partial(_components, "begin"),
    "components spread": functools.partial(_components, "spread"),
    "softmax": _softmax,
    "mandelbrot": _mandelbrot,
    "wave": _wave,
    "nbody": _nbody,
    "fft": _fft,
    "montecarlo": _montecarlo,
} | {
    f"sort {name}": functools.partial(_sort, name) for name in ("scan", "move")
} | {
    f"sparse {name}": functools.partial(_sparse, name)
    for name in ("multiply", "advance")
} | {
    name: functools.partial(_digits, name)
    for name in (
        "initialise", "gather", "first_layer", "last_layer", "loss_gradient", "hidden_backward",
        "last_step", "average", "read",
    )
}  # fmt: skip
PAIRS = (
    ("CPU", "llvm"), ("CPU", "clang"), ("CPU", "gcc"), ("CPU", "zig"),
    ("CUDA", "nvrtc"), ("CUDA", "ptx"), ("OPENCL", "driver"),
)  # fmt: skip


@functools.cache
def _expected(name: str) -> list[Any]:
    """What the interpreter writes; it also says that nothing is undefined."""
    launch = LAUNCHES[name]()
    arrays = [array.copy() for array in launch.arrays]
    interpret(launch.kernel, *arrays, vals=launch.vals, **launch.geometry)
    return arrays


@pytest.mark.parametrize("name", LAUNCHES)
def test_an_example_kernel_does_something(name: str) -> None:
    """Else every device would agree on it."""
    before, after = LAUNCHES[name]().arrays, _expected(name)
    assert not np.array_equal(before[0], after[0])


@pytest.mark.parametrize("name", LAUNCHES)
@pytest.mark.parametrize(("family", "pair"), PAIRS, ids=map(":".join, PAIRS))
def test_an_example_kernel_gives_the_interpreter_s_answer(
    family: str, pair: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not _have(family):
        pytest.skip(f"hal-{family.lower()} is not installed here")
    monkeypatch.setenv(f"{family}_CC", pair)
    launch = LAUNCHES[name]()
    try:
        device = hal.Device[family]
        program = device.compile(launch.kernel.lower())  # anew for each pair
    except (hal.DeviceUnavailable, hal.CompilerUnavailable) as error:
        if family in REQUIRED and pair not in ("clang", "gcc", "zig"):
            raise
        pytest.skip(str(error))
    buffers = [hal.Buffer.from_numpy(array, device) for array in launch.arrays]
    program(*buffers, vals=launch.vals, **launch.geometry)
    for buffer, expected in zip(buffers, _expected(name), strict=True):
        found, close = buffer.numpy(), {"rtol": launch.tolerance, "atol": launch.tolerance}
        if found.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, **close)
        else:
            np.testing.assert_array_equal(found, expected)


@needs_cpu
@pytest.mark.parametrize("name", LAUNCHES)
def test_an_example_kernel_is_interpreted_in_checked_mode(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the answer is the interpreter's to the last bit."""
    hal.Device["CPU"].close()
    monkeypatch.setenv("HAL_CHECK", "1")
    launch = LAUNCHES[name]()
    with hal.Device["CPU"] as device:
        program = device.compile(launch.kernel)
        assert program.pair == "checked"
        buffers = [hal.Buffer.from_numpy(array, device) for array in launch.arrays]
        program(*buffers, vals=launch.vals, **launch.geometry)
        for buffer, expected in zip(buffers, _expected(name), strict=True):
            np.testing.assert_array_equal(buffer.numpy(), expected)


def test_the_example_backend_renders_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its device needs a driver of Vulkan, its renderer nothing."""
    monkeypatch.syspath_prepend(ROOT / "examples" / "wgpu-backend")
    from hal_wgpu.wgsl import WGSLRenderer  # type: ignore[import-not-found]

    from hal_testing.conformance.arithmetic import sample_of_operations
    from hal_testing.conformance.functions import sample_of_derived, sample_of_math

    renderer = WGSLRenderer()
    for made in (sample_of_operations, sample_of_math, sample_of_derived):
        kernel = made(hal.float32).kernel.lower()
        assert f"fn hal_{kernel.name}(" in renderer.render(kernel)

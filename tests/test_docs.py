"""What the pages say is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hal_core as hal

ROOT = Path(__file__).resolve().parents[1]
DEVICES = [name for name in ("CPU", "OPENCL") if find_spec(f"hal_{name.lower()}") is not None]
needs_cpu = pytest.mark.skipif("CPU" not in DEVICES, reason="hal-cpu is not installed here")


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@needs_cpu
def test_the_code_of_the_kernel_language_page_runs(tmp_path: Path) -> None:
    code = "\n".join(blocks("kernel-language.md"))
    script = tmp_path / "page.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env=os.environ | {"HAL_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    promised = re.findall(r"print\(.*\)  # (.*)", code)
    assert promised and done.stdout.splitlines() == promised


def test_the_source_kernels_of_the_page_run(device: Any) -> None:
    code: dict[str, Any] = {}
    exec("\n".join(blocks("source-kernels.md")[1:]), code)
    source = {"CPU": code["scale_on_cpu"], "OPENCL": code["scale"]}[device.family]
    try:
        program = device.compile(source)
    except hal.CompilerUnavailable as error:
        pytest.skip(str(error))
    x = hal.Buffer.from_numpy(np.arange(1000, dtype="f4"), device)
    y = hal.zeros(1000, hal.float32, device)
    program(y, x, vals=(1000,), threads=1000)
    assert np.array_equal(y.numpy(), 2 * np.arange(1000, dtype="f4"))


@hal.kernel
def integers(y: hal.Ptr[hal.int32], a: hal.int32, b: hal.int32) -> None:
    y[0] = a // b
    y[1] = a % b
    y[2] = a << b
    y[3] = a >> b
    y[4] = a * b
    y[5] = -a


@hal.kernel
def casts(y: hal.Ptr[hal.int32], z: hal.Ptr[hal.uint8], x: hal.float32) -> None:
    y[0] = hal.int32(x)
    z[0] = hal.uint8(x)
    y[1] = hal.int32(hal.bool_(x))


@hal.kernel
def choices(y: hal.Ptr[hal.float32], a: hal.float32, b: hal.float32) -> None:
    y[0] = min(a, b)
    y[1] = max(a, b)
    y[2] = round(a)


@pytest.fixture(params=DEVICES or [pytest.param("", marks=pytest.mark.skip("no backend here"))])
def device(request: pytest.FixtureRequest) -> Any:
    try:
        return hal.Device[request.param]
    except hal.DeviceUnavailable as error:
        pytest.skip(str(error))


LEAST = -(2**31)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (-7, 2, [-4, 1, -28, -2, -14, 7]),
        (7, -2, [-4, -1, -1073741824, 0, -14, -7]),
        (5, 0, [0, 0, 5, 5, 0, -5]),
        (LEAST, -1, [LEAST, 0, 0, -1, LEAST, LEAST]),
        (1, 33, [0, 1, 2, 0, 33, -1]),
    ],
)
def test_integer_arithmetic_is_the_page_s(device: Any, a: int, b: int, expected: Any) -> None:
    y = hal.zeros(6, hal.int32, device)
    device.compile(integers)(y, vals=(a, b), threads=1)
    assert y.numpy().tolist() == expected


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (float("nan"), [0, 1, 0]),
        (300.0, [300, 1, 255]),
        (-2.9, [-2, 1, 0]),
        (1e20, [2**31 - 1, 1, 255]),
        (float("-inf"), [LEAST, 1, 0]),
        (0.0, [0, 0, 0]),
    ],
    ids=str,
)
def test_casts_are_the_page_s(device: Any, x: float, expected: Any) -> None:
    y, z = hal.zeros(2, hal.int32, device), hal.zeros(1, hal.uint8, device)
    device.compile(casts)(y, z, vals=(x,), threads=1)
    assert [*y.numpy().tolist(), *z.numpy().tolist()] == expected


def test_min_max_and_round_are_the_page_s(device: Any) -> None:
    program = device.compile(choices)
    nan = float("nan")
    for a, b, expected in [
        (1.0, 2.0, [1, 2, 1]),
        (2.5, nan, [2.5, 2.5, 2]),
        (nan, 1.0, [nan, nan, nan]),
        (-3.5, -3.5, [-3.5, -3.5, -4]),
    ]:
        y = hal.zeros(3, hal.float32, device)
        program(y, vals=(a, b), threads=1)
        assert np.array_equal(y.numpy(), np.array(expected, "f4"), equal_nan=True)

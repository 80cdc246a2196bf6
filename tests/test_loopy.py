"""Kernels of loopy, a front end that is not ours, by the adapter of docs/compilers.md."""

import re
from pathlib import Path

import numpy as np
import pytest

import hal_core as hal

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.filterwarnings("ignore")  # loopy's own, of Python's newer versions


@pytest.fixture(scope="module")
def lp():
    loopy = pytest.importorskip("loopy", reason="loopy is not installed: pip install loopy")
    page = (ROOT / "docs" / "compilers.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```py\n(import loopy.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) < 40
    exec(code, {})
    return loopy


@pytest.fixture
def device():
    try:
        return hal.Device["OPENCL"]
    except hal.DeviceUnavailable as error:
        pytest.skip(str(error))


def axpy(lp, block=64):
    arrays = lp.GlobalArg("x,y,out", np.float32, shape=("n",))
    numbers = lp.ValueArg("a", np.float32), lp.ValueArg("n", np.int32)
    unit = lp.make_kernel(
        "{[i]: 0<=i<n}", "out[i] = a*x[i] + y[i]", [arrays, *numbers],
        target=lp.OpenCLTarget(), name="axpy", lang_version=(2018, 2),
    )  # fmt: skip
    if not block:
        return lp.tag_inames(unit, {"i": "g.0"})
    return lp.split_iname(unit, "i", block, outer_tag="g.0", inner_tag="l.0")


def test_C_kernels_of_loopy_are_compiled_launched_captured_profiled_and_cached(lp, device):
    n, unit = 1000, axpy(lp)
    before = hal.cache.statistics()
    with hal.profile() as profile:
        program = device.compile(unit)
    assert device.compile(unit) is program
    assert str(program.signature) == (
        "x: const float32*, y: const float32*, out: float32*, a: float32, n: int32"
    )
    host = np.linspace(0, 1, n, dtype="f4")
    x, y = (hal.Buffer.from_numpy(array, device) for array in (host, host[::-1].copy()))
    out = hal.zeros(n, hal.float32, device)
    program(x, y, out, vals=(3.0, n), threads=n, wait=True)
    assert np.allclose(out.numpy(), 3 * host + host[::-1])
    with device.capture() as graph:
        program(x, y, out, vals=(2.0, n), threads=n)
        program(out, y, x, vals=(1.0, n), threads=n)
    graph.replay(wait=True)
    assert np.allclose(x.numpy(), 2 * host + 2 * host[::-1])
    assert "axpy" in {event.name for event in profile.events if hasattr(event, "name")}
    device.compile(axpy(lp))  # an equal kernel, another object
    after = hal.cache.statistics()
    device.compile(axpy(lp, 0))(x, y, out, vals=(3.0, n), threads=n)  # without a local axis
    assert np.allclose(out.numpy(), 3 * x.numpy() + y.numpy())
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 1)

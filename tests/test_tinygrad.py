"""Image kernels of tinygrad, a compiler that is not ours, by the adapter of docs/compilers.md."""

import re
from pathlib import Path

import numpy as np
import pytest

import hal_core as hal

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.filterwarnings("ignore")  # tinygrad's own


@pytest.fixture
def device():
    try:
        opened = hal.Device["OPENCL"]
    except hal.DeviceUnavailable as error:
        pytest.skip(str(error))
    if "images" not in opened.info.capabilities:
        pytest.skip("the device has no images")
    return opened


def test_kernels_of_tinygrad_read_and_write_images(device):
    reason = "tinygrad is not installed, or older than 0.14: pip install tinygrad"
    tinygrad = pytest.importorskip("tinygrad", reason=reason)
    if not hasattr(tinygrad.Tensor, "schedule_linear"):
        pytest.skip(reason)
    page = (ROOT / "docs" / "compilers.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```py\n(from tinygrad.*?)^```", page, re.MULTILINE | re.DOTALL)
    names = {}
    exec(code, names)
    x, w = (np.random.default_rng(1).random(shape, "f4") for shape in ((16, 64), (64, 32)))
    # Without compilers tinygrad has no device of its own but this, and looks for one.
    with tinygrad.helpers.Context(IMAGE=1, DEV="NULL"):
        tensors = [tinygrad.Tensor.empty(*one.shape, device="NULL") for one in (x, w)]
        result = (((tensors[0] - 0.5).relu() + 1).contiguous() @ tensors[1]).half().contiguous()
        schedule = result.schedule_linear()
        memory = {
            tensor.uop.base: hal.Buffer.from_numpy(one, device)
            for tensor, one in zip(tensors, (x, w), strict=True)
        }
        with hal.profile() as profile:
            names["run"](schedule, device, memory)
    expected = (np.maximum(x - 0.5, 0) + 1) @ w
    np.testing.assert_allclose(memory[result.uop.base].numpy((16, 32)).view("f2"), expected, 1e-3)
    launched = [one.name for one in profile.events if getattr(one, "kind", "") == "launch"]
    assert len(launched) == len(schedule.src) > 1

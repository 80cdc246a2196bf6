"""The README's code runs, prints what it says, and keeps inside its buffers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import hal_core as hal

pytestmark = pytest.mark.results

README = Path(__file__).resolve().parents[1] / "README.md"


def code() -> str:
    [block] = re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)
    return block


def test_the_example_prints_what_it_says(
    device: hal.Compiled, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(code(), {})
    promised = re.findall(r"^print\(.*\)  # (.*)", code(), re.M)
    assert promised and capsys.readouterr().out.splitlines() == promised


def test_the_example_guards_against_surplus_threads(device: hal.Compiled) -> None:
    space: dict[str, Any] = {}
    exec(code().partition("x = hal.zeros")[0], space)
    x = hal.zeros(1024, hal.float32, device).fill(2)
    y = hal.zeros(1024, hal.float32, device).fill(-1)
    device.compile(space["scale"])(y, x, vals=(2.0, 300), threads=300, block=256)
    assert y.numpy().tolist() == [4.0] * 300 + [-1.0] * 724


def test_without_extern_c_loading_says_so(device: hal.Compiled) -> None:
    space: dict[str, Any] = {}
    exec(code().replace('extern "C" ', "").partition("x = hal.zeros")[0], space)
    with pytest.raises(hal.CompileError, match='mark the kernel extern "C"'):
        device.compile(space["scale"])

"""The README's code runs, prints what it says, and keeps inside its buffers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import hal_core as hal
from hal_cpu.compilers.c import C_COMPILERS

pytestmark = pytest.mark.results

README = Path(__file__).resolve().parents[1] / "README.md"


def code() -> str:
    [block] = re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)
    return block


@pytest.fixture(autouse=True)
def c_compiler() -> None:
    """The README says that Source kernels need one."""
    if not any(row.command() for row in C_COMPILERS.values()):
        pytest.skip("no C compiler is installed: pip install ziglang")


def test_the_example_prints_what_it_says(
    device: hal.Compiled, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(code(), {})
    promised = re.findall(r"^print\(.*\)  # (.*)", code(), re.M)
    assert promised and capsys.readouterr().out.splitlines() == promised


def test_P6_the_example_guards_against_surplus_threads(device: hal.Compiled) -> None:
    space: dict[str, Any] = {}
    exec(code().partition("x = hal.zeros")[0], space)
    program = device.compile(space["scale"])
    numbers = [param.name for param in program.signature.values]
    for n in (1, 257, 300):
        x = hal.zeros(1024, hal.float32, device).fill(2)
        y = hal.zeros(1024, hal.float32, device).fill(-1)
        program(y, x, vals=[n if name == "n" else 2.0 for name in numbers], threads=n, block=256)
        assert y.numpy().tolist() == [4.0] * n + [-1.0] * (1024 - n)

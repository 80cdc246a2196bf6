"""The README's code runs, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hal_core as hal

pytestmark = pytest.mark.results

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_example_prints_what_it_says(
    device: hal.Compiled, capsys: pytest.CaptureFixture[str]
) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)
    exec(code, {})
    promised = re.findall(r"^print\(.*\)  # (.*)", code, re.M)
    assert promised and capsys.readouterr().out.splitlines() == promised

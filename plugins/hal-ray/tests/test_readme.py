"""The README's code runs, on the cluster that the process is connected to."""

import re
from pathlib import Path
from runpy import run_path

import pytest

import hal_core as hal

pytestmark = pytest.mark.results

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_example_runs(cluster, capsys, tmp_path):
    [block] = re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)
    path = tmp_path / "readme.py"  # kernels are read from their file
    path.write_text(block, encoding="utf-8")
    run_path(str(path))
    *listed, result = capsys.readouterr().out.splitlines()
    assert result == "[3. 3. 3.]"
    assert listed == [f"{info.name} {info.title}" for info in hal.Device.devices("RAY")]

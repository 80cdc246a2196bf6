"""The code of docs/clusters.md runs: on a cluster of Ray, with Dask, and under MPI."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "clusters.md"
NEEDS = {"dask": "distributed", "mpi4py": "mpi4py"}  # in a block -> what to install
START = "import numpy as np\n\nimport hal_core as hal\n"


def blocks():
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


def part(name):
    """The kernel of the page, and the block that imports `name`."""
    if find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed; nox -s ray has it")
    [kernel] = re.findall(r"^@hal.kernel\n(?:.+\n)+", "\n".join(blocks()), re.M)
    [block] = [block for block in blocks() if f"from {name}" in block]
    return f"{START}\n\n{kernel}\n\n{block}"


def test_the_code_for_ray_runs(cluster, tmp_path, monkeypatch):
    code = [block for block in blocks() if not any(f"from {name}" in block for name in NEEDS)]
    assert len(code) == 4
    path = tmp_path / "page.py"  # kernels are read from their file
    path.write_text("\n".join(code), encoding="utf-8")
    run_path(str(path))


def test_the_code_for_dask_runs(own_cache, tmp_path):
    code = part("dask") + (
        "\n\nif __name__ == '__main__':\n"
        "    how = dict(n_workers=1, threads_per_worker=1, dashboard_address=None)\n"
        "    with Client(host='127.0.0.1', **how) as client:\n"
        "        print(on_dask(client))\n"
    )
    path = tmp_path / "on_dask.py"
    path.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "[0.0, 20.0, 40.0]"


def test_the_code_for_mpi_runs(own_cache, tmp_path):
    code = part("mpi4py") + "\n\nprint(sum_of_all(MPI.COMM_WORLD))\n"
    path = tmp_path / "under_mpi.py"
    path.write_text(code, encoding="utf-8")
    launcher = Path(sys.executable).with_name("mpiexec")
    start = [str(launcher), "-n", "2"] if launcher.exists() else []
    done = subprocess.run(
        [*start, sys.executable, str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    # The launcher may put the lines of two processes into one.
    assert "".join(done.stdout.split()) == ("6000.0" * 2 if start else "2000.0")

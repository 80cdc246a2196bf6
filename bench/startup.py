"""Costs of a new process: the import alone, and all steps to a first result."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import OURS, Effort, Task, call, compare
from bench.peers import Peers
from bench.report import Missing, Row, beside

DISTRIBUTIONS = 100

FIRST_RESULT = """
import hal_core as hal

@hal.kernel
def twice(y: hal.Ptr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] * 2.0

device = hal.Device["CPU"]
y = hal.Buffer(device, 256, hal.float32).copyin(b"\\0\\0\\x80?" * 256)
device.compile(twice)(y, vals=(256,), threads=256)
result = bytearray(1024)
y.copyout(result)
if bytes(result) != b"\\0\\0\\0@" * 256:
    raise SystemExit("wrong result")
"""
TINYGRAD = 'from tinygrad.device import Device; Device["CPU"]'


def rows(effort: Effort) -> Iterator[Row | Missing]:
    with tempfile.TemporaryDirectory() as folder:
        yield importing(Path(folder), effort.rarely())
        yield first_result(Path(folder), effort.rarely())


def importing(folder: Path, effort: Effort) -> Row:
    """Measure the import beside a hundred distributions, which the search for plugins reads."""
    site = folder / "site"
    for number in range(DISTRIBUTIONS):
        info = site / f"filler_{number}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: filler-{number}\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(f"[console_scripts]\nfiller{number} = filler:main\n")
    environment = {"PYTHONPATH": os.pathsep.join((str(site), os.environ.get("PYTHONPATH", "")))}
    peers = Peers(
        tinygrad=lambda: _process("from tinygrad.device import Device", environment),
        numpy=lambda: _process("import numpy", environment),
    )
    tasks = {
        OURS: _process("import hal_core", environment),
        "python": _process("pass", environment),
    }
    times = compare(tasks | peers.tasks, effort)
    what = f"process that imports hal_core, {DISTRIBUTIONS} distributions"
    return beside(what, times, times.allow("python", 0.008), 1.0, peers=peers.results(times))


def first_result(folder: Path, effort: Effort) -> Row | Missing:
    """Measure import, opening the CPU, a kernel from the disk cache, and the result on the host."""
    what = "fresh process to a first result (cached kernel)"
    script = folder / "first_result.py"
    script.write_text(FIRST_RESULT, encoding="utf-8")
    environment = {"HAL_CACHE_DIR": str(folder / "cache")}
    ours = call(lambda: _run((sys.executable, str(script)), environment))
    peers = Peers(tinygrad=lambda: _process(TINYGRAD, {}))
    if "tinygrad" not in peers.tasks:
        return Missing(what, f"the target is against tinygrad, which {peers.reasons['tinygrad']}")
    times = compare({OURS: ours} | peers.tasks, effort)
    return beside(what, times, "tinygrad", 1.67, name="tinygrad, import + open")


def _process(code: str, environment: dict[str, str]) -> Task:
    command = (sys.executable, "-c", code)
    _run(command, environment)  # raises if the code does not work
    return call(lambda: _run(command, environment))


def _run(command: tuple[str, ...], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"process ended with {done.returncode}: {''.join(last)}")

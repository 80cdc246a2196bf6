"""Run the kit, the examples and the benchmarks on one device, and write a page about it.

    python -m bench.hardware CUDA --examples examples --into docs/hardware

Each runs in a process of its own, so that a crash of one leaves the results of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import hal_core as hal
from bench import machine, page, report, sizes
from bench.device import compilers
from bench.found import Ended, Example, Kit, Run, Table

HOUR = 3600.0  # limit of each process: a device that hangs is a result too
SLOW = 16 << 20  # bytes: a device for which `sizes` chooses smaller arrays gets small examples
QUICK_CHAPTERS = ("event", "program")
# Arguments for examples that take a size: a slow device needs seconds for these.
SMALL = {
    "matmul": ("--size", "64"),
    "reduction": ("--count", "70000"),
    "histogram": ("--count", "70000"),
    "softmax": ("--rows", "20", "--columns", "300"),
    "mandelbrot": ("--size", "50"),
}
LONG = ("digits", "edges")  # examples without a size


def main() -> int:
    """Return the exit code: 1 if something failed; the page is written anyway."""
    options = arguments()
    try:
        run = everything(options.device, options.examples, options.quick)
    except hal.HalError as error:
        print(f"no page: {error}", file=sys.stderr)
        return 2
    path = options.into / f"{page.file_name(run.info)}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.text(run), encoding="utf-8")
    console = Console(soft_wrap=True)
    console.print(f"{path}", markup=False)
    for failure in run.failures:
        console.print(f"failed: {failure}", style="red", markup=False)
    return int(bool(run.failures))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.hardware", description=__doc__)
    parser.add_argument("device", metavar="DEVICE", help="its name: CUDA, OPENCL:1")
    parser.add_argument("--into", type=Path, required=True, help="folder of the page")
    parser.add_argument("--examples", type=Path, required=True, help="folder of the examples")
    parser.add_argument("--quick", action="store_true", help="a part of everything")
    return parser.parse_args()


def everything(name: str, examples: Path, quick: bool) -> Run:
    """Run everything. Raises: HalError if there is no such device, or it does not open."""
    with hal.Device[name] as device:
        info, serving = device.info, compilers(device)
        small = quick or sizes.choose(device, quick).array < SLOW
    pairs = [pair for pair, why in serving.items() if not why]
    paths = sorted(examples.glob("*.py"))
    with tempfile.TemporaryDirectory(prefix="hal-hardware-") as kept:
        folder = Path(kept)
        steps: dict[str, Callable[[], Any]] = {}
        for pair in pairs:
            steps[f"kit, {pair}"] = partial(check, info.name, pair, quick, folder)
        for path in paths:
            steps[path.name] = partial(example, path, info, small, quick, folder)
        for title, of in tables(info.name):
            steps[title] = partial(bench, title, of, quick, folder)
        done = shown(info.name, steps)
    ends = len(pairs), len(pairs) + len(paths)
    absent = {pair: why for pair, why in serving.items() if why}
    facts = list(machine.facts(info))
    return Run(
        info, quick, absent, facts, done[: ends[0]], done[ends[0] : ends[1]], done[ends[1] :]
    )


def tables(name: str) -> list[tuple[str, str]]:
    """Return the titles of benchmarks, and the device of each; the CPU's own table has ""."""
    return [("benchmarks", name)] + [("benchmarks of the CPU", "")] * (name == "CPU")


def shown(title: str, steps: dict[str, Callable[[], Any]]) -> list[Any]:
    """Run the steps under a progress line, and return their results."""
    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
    done = []
    with Progress(*columns) as progress:
        task = progress.add_task(title, total=len(steps))
        for name, step in steps.items():
            progress.update(task, description=f"{title}: {name}")
            done.append(step())
            progress.update(task, advance=1)
    return done


# -- parts that run in a process of their own


def ended(*arguments: str, cwd: str | None = None, **environment: str) -> Ended:
    """Run a Python program to its end."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            (sys.executable, *arguments), env=os.environ | environment, cwd=cwd, timeout=HOUR,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").decode(errors="replace")
        return Ended(124, HOUR, f"{said}\nIt did not end within {HOUR:.0f} s.")
    return Ended(done.returncode, time.perf_counter() - start, done.stdout)


def check(name: str, pair: str, quick: bool, folder: Path) -> Kit:
    path = folder / f"kit-{pair}.json"
    wanted = ("--chapter", *QUICK_CHAPTERS) if quick else ()
    end = ended(
        *("-m", "hal_core", "check", name, "--pair", pair, "--require-device"),
        *("--report", str(path), *wanted),
    )
    return Kit(pair, end, json.loads(path.read_text("utf-8")) if path.exists() else None)


def example(path: Path, info: hal.DeviceInfo, small: bool, quick: bool, folder: Path) -> Example:
    """Run an example with an empty compile cache."""
    if quick and path.stem in LONG:
        return Example(path.stem, (), None, "left out by --quick")
    if path.stem == "saxpy":  # it has no options: the README shows all of its code
        if info.name != "CPU":
            return Example(path.stem, (), None, "its text names the CPU")
        given: tuple[str, ...] = ()
    else:
        given = ("--device", info.name, *(SMALL.get(path.stem, ()) if small else ()))
    cache = f"{folder}/cache-{path.stem}"
    end = ended(str(path.resolve()), *given, cwd=str(folder), HAL_CACHE_DIR=cache, COLUMNS="100")
    return Example(path.stem, given, end)


def bench(title: str, name: str, quick: bool, folder: Path) -> Table:
    """Run the benchmarks of a device, or without a name those of the CPU's own table."""
    path = folder / f"{title}.json"
    of_device = ("--device", name) if name else ()
    end = ended("-m", "bench", *of_device, "--json", str(path), *(("--quick",) if quick else ()))
    return Table(title, end, report.from_json(path.read_text("utf-8")) if path.exists() else [])


if __name__ == "__main__":
    sys.exit(main())

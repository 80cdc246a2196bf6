"""Run the kit, the examples and the benchmarks on one device, and write a page about it.

    python -m bench.hardware CUDA

Each part runs in a process of its own, so that a crash of one leaves the results of the others. The
page is written after each part, so that a run that is cut short leaves what it had.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import hal_core as hal
from bench import machine, page, report, sizes
from bench.device import compilers
from bench.found import Ended, Example, Kit, Run, Table

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "hardware"
SLOW = 16 << 20  # bytes: a device for which `sizes` chooses smaller arrays gets small examples
QUICK_CHAPTERS = ("event", "view")
# Arguments for examples that take a size: a slow device needs seconds for these.
SMALL = {
    "matmul": ("--size", "64"),
    "reduction": ("--count", "70000"),
    "softmax": ("--rows", "20", "--columns", "300"),
    "mandelbrot": ("--size", "50"),
    "sort": ("--count", "5000"),
    "fft": ("--signals", "20", "--size", "256"),
    "sparse": ("--size", "20"),
}
LONG = ("cluster", "digits", "edges", "heat")  # examples without a size
NEEDS = {"weights": "safetensors"}  # examples of another package


class How(NamedTuple):
    """The way in which the parts are run."""

    quick: bool  # do only some of each part
    limit: float  # seconds after which a part is ended: a device that hangs is a result too
    folder: Path  # for what the parts write


def main(given: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 if something failed; the page is written anyway."""
    options = arguments(given)
    options.into.mkdir(parents=True, exist_ok=True)
    save = partial(write, options.into)
    try:
        with tempfile.TemporaryDirectory(prefix="hal-hardware-") as kept:
            how = How(options.quick, options.limit, Path(kept))
            run = everything(options.device, options.examples, how, save)
    except hal.HalError as error:
        print(f"no page: {error}", file=sys.stderr)
        return 2
    console = Console(soft_wrap=True)
    console.print(f"{save(run)}", markup=False)
    for failure in run.failures:
        console.print(f"failed: {failure}", style="red", markup=False)
    return int(bool(run.failures))


def write(folder: Path, run: Run) -> Path:
    """Write the page of what has run until now; return its path."""
    path: Path = folder / f"{page.file_name(run.info)}.md"
    path.write_text(page.text(run), encoding="utf-8")
    return path


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.hardware", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("device", metavar="DEVICE", help="its name: CUDA, OPENCL:1")
    into = PAGES if PAGES.is_dir() else Path()
    parser.add_argument("--into", type=Path, default=into, help=f"folder of the page: {into}")
    parser.add_argument(
        "--examples", type=Path, default=ROOT / "examples", help="folder of the examples"
    )
    parser.add_argument(
        "--limit", type=float, default=3600.0, metavar="SECONDS",
        help="time after which a part is ended: 3600",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="do only some of each part")
    return parser.parse_args(given)


def everything(name: str, examples: Path, how: How, save: Callable[[Run], object]) -> Run:
    """Run everything, and `save` what there is after each part.

    Raises: HalError if there is no such device, or it does not open.
    """
    with hal.Device[name] as device:
        info, serving = device.info, compilers(device)
        small = how.quick or sizes.choose(device, how.quick).array < SLOW
    absent = {pair: why for pair, why in serving.items() if why}
    run = Run(info, how.quick, absent, list(machine.facts(info)), [], [], [], [])
    paths = sorted(examples.glob("*.py"))
    steps: list[tuple[str, list[Any], Callable[[], Any]]] = [  # title, its records, the part
        *((f"kit, {pair}", run.kits, partial(check, info.name, pair, how))
          for pair, why in serving.items() if not why),
        *((path.name, run.examples, partial(example, path, info, small, how)) for path in paths),
        *((title, run.tables, partial(bench, title, of, how)) for title, of in tables(info.name)),
    ]  # fmt: skip
    run.pending.extend(title for title, _, _ in steps)
    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns) as progress:
        task = progress.add_task(info.name, total=len(steps))
        for title, records, part in steps:
            save(run)
            progress.update(task, description=f"{info.name}: {title}")
            records.append(part())
            run.pending.remove(title)
            progress.update(task, advance=1)
    return run


def tables(name: str) -> list[tuple[str, str]]:
    """Return the titles of benchmarks, and the device of each; the CPU's own table has ""."""
    return [("benchmarks", name)] + [("benchmarks of the CPU", "")] * (name == "CPU")


# -- parts that run in a process of their own


def ended(*arguments: str, limit: float, cwd: str | None = None, **environment: str) -> Ended:
    """Run a Python program to its end, or to the limit in seconds."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            (sys.executable, *arguments), env=os.environ | environment, cwd=cwd, timeout=limit,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").decode(errors="replace")
        return Ended(124, limit, f"{said}\nIt did not end within {limit:.0f} s.")
    return Ended(done.returncode, time.perf_counter() - start, done.stdout)


def check(name: str, pair: str, how: How) -> Kit:
    path = how.folder / f"kit-{pair}.json"
    wanted = ("--chapter", *QUICK_CHAPTERS) if how.quick else ()
    end = ended(
        *("-m", "hal_core", "check", name, "--pair", pair, "--require-device"),
        *("--report", str(path), *wanted),
        limit=how.limit,
    )
    return Kit(pair, end, json.loads(path.read_text("utf-8")) if path.exists() else None)


def example(path: Path, info: hal.DeviceInfo, small: bool, how: How) -> Example:
    """Run an example with an empty compile cache."""
    if how.quick and path.stem in LONG:
        return Example(path.stem, (), None, "left out by --quick")
    if path.stem in NEEDS and find_spec(NEEDS[path.stem]) is None:
        return Example(path.stem, (), None, f"{NEEDS[path.stem]} is not installed")
    if path.stem == "saxpy":  # it has no options: the README shows all of its code
        if info.name != "CPU":
            return Example(path.stem, (), None, "its text names the CPU")
        given: tuple[str, ...] = ()
    else:
        given = ("--device", info.name, *(SMALL.get(path.stem, ()) if small else ()))
    cache = f"{how.folder}/cache-{path.stem}"
    end = ended(
        str(path.resolve()), *given, limit=how.limit, cwd=str(how.folder), HAL_CACHE_DIR=cache,
        COLUMNS="100",
    )  # fmt: skip
    return Example(path.stem, given, end)


def bench(title: str, name: str, how: How) -> Table:
    """Run the benchmarks of a device, or without a name those of the CPU's own table."""
    path = how.folder / f"{title}.json"
    given = (*(("--device", name) if name else ()), *(("--quick",) if how.quick else ()))
    end = ended("-m", "bench", "--json", str(path), *given, limit=how.limit)
    return Table(title, end, report.from_json(path.read_text("utf-8")) if path.exists() else [])


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench`: measure everything in one run; write one table, and JSON.

`python -m bench --device CUDA` measures one device, compared with its driver's own interface.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn

from bench import (
    busy,
    cluster,
    compiling,
    costs,
    device,
    kernels,
    language,
    launch,
    memory,
    opencl_peers,
    programs,
    queues,
    report,
    startup,
)
from bench.measure import FULL, QUICK

Rows = list[report.Row | report.Figure | report.Missing]
NOUNS = {
    "startup": startup, "language": language, "compiling": compiling, "memory": memory,
    "launch": launch, "queues": queues, "kernels": kernels, "costs": costs, "programs": programs,
    "opencl": opencl_peers, "busy": busy, "cluster": cluster,
}  # fmt: skip
# Parts whose libraries may wait for ever or end the process, as Ray does, and the seconds that one
# row may take: one on a slow machine takes 60, the start of the cluster with it.
MAY_HANG = {"cluster": 180.0}


def main() -> int:
    """Return the exit code: 1 if a row could not be measured that should have been."""
    options = arguments()
    effort = QUICK if options.quick else FULL
    rows: Rows = []
    if options.device:
        with Progress(TextColumn("{task.description}"), BarColumn()) as progress:
            task = progress.add_task(options.device, total=len(device.PARTS) + 1)
            for part, found in device.rows(options.device, effort, options.quick):
                progress.update(task, advance=1, description=f"{options.device}: {part} done")
                rows += found
    else:
        for name in options.only or NOUNS:
            if name in MAY_HANG and options.only != [name]:
                rows += in_a_process(name, options.quick)
                continue
            for row in NOUNS[name].rows(effort):
                rows.append(row)
                write(options.json, rows)
    report.show(rows)
    write(options.json, rows)
    if options.write_table:
        report.write_table(options.table, rows)
    return int(any(isinstance(row, report.Missing) and row.failed for row in rows))


def write(path: Path | None, rows: Rows) -> None:
    """Write what was measured so far; whoever waits for the next row reads a whole file."""
    if path is not None:
        new = path.with_name(f"{path.name}.new")
        new.write_text(report.as_json(rows), encoding="utf-8")
        new.replace(path)


def in_a_process(name: str, quick: bool) -> Rows:
    """Measure a part in a process of its own, which is ended when one row takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.json")
        command = [sys.executable, "-m", "bench", "--only", name, "--json", str(path)]
        command += ["--quick"] if quick else []
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        rows: Rows = []
        while process.poll() is None:
            try:
                process.wait(MAY_HANG[name])
            except subprocess.TimeoutExpired:
                if len(read(path)) == len(rows):
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            rows = read(path)
    if process.returncode and not any(isinstance(r, report.Missing) and r.failed for r in rows):
        why = f"its process ended with {process.returncode}, or a row took {MAY_HANG[name]:g} s"
        rows.append(report.Missing(f"the other rows of {name}", why, failed=True))
    return rows


def read(path: Path) -> Rows:
    return report.from_json(path.read_text(encoding="utf-8")) if path.exists() else []


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short look, figures less sure")
    parser.add_argument("--only", choices=NOUNS, action="append", help="a part of the table")
    parser.add_argument("--device", metavar="NAME", help="the rows of this device instead")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--table", type=Path, default=Path("docs/speed-table.md"), metavar="PAGE")
    parser.add_argument("--write-table", action="store_true", help="put the table into its page")
    options = parser.parse_args()
    if options.device and (options.only or options.write_table):
        parser.error("--only and --write-table are of the table without --device")
    return options


if __name__ == "__main__":
    sys.exit(main())

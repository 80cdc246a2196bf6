"""`python -m bench`: measure everything in one run; write one table, and JSON.

`python -m bench --device CUDA` measures one device, compared with its driver's own interface.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn

from bench import (
    blocks,
    cluster,
    device,
    functions,
    guards,
    kernels,
    language,
    launch,
    libraries,
    memory,
    opencl_peers,
    programs,
    queues,
    report,
    startup,
)
from bench.measure import FULL, QUICK

NOUNS = {
    "startup": startup,
    "language": language,
    "memory": memory,
    "launch": launch,
    "queues": queues,
    "kernels": kernels,
    "guards": guards,
    "functions": functions,
    "blocks": blocks,
    "programs": programs,
    "libraries": libraries,
    "opencl": opencl_peers,
    "cluster": cluster,
}


def main() -> int:
    """Return the exit code: 1 if a row could not be measured that should have been."""
    options = arguments()
    effort = QUICK if options.quick else FULL
    rows: list[report.Row | report.Figure | report.Missing] = []
    if options.device:
        with Progress(TextColumn("{task.description}"), BarColumn()) as progress:
            task = progress.add_task(options.device, total=len(device.PARTS) + 1)
            for part, found in device.rows(options.device, effort, options.quick):
                progress.update(task, advance=1, description=f"{options.device}: {part} done")
                rows += found
    else:
        for name in options.only or NOUNS:
            rows += NOUNS[name].rows(effort)
    report.show(rows)
    if options.json:
        options.json.write_text(report.as_json(rows), encoding="utf-8")
    if options.write_readme:
        report.write_readme(options.readme, rows)
    return int(any(isinstance(row, report.Missing) and row.failed for row in rows))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short look, figures less sure")
    parser.add_argument("--only", choices=NOUNS, action="append", help="a part of the table")
    parser.add_argument("--device", metavar="NAME", help="the rows of this device instead")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    parser.add_argument("--write-readme", action="store_true", help="put the table into the README")
    options = parser.parse_args()
    if options.device and (options.only or options.write_readme):
        parser.error("--only and --write-readme are of the table without --device")
    return options


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench`: everything in one run, one table, and JSON."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import blocks, kernels, language, launch, memory, report, startup
from bench.measure import FULL, QUICK

NOUNS = {
    "startup": startup,
    "language": language,
    "memory": memory,
    "launch": launch,
    "kernels": kernels,
    "blocks": blocks,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short look, figures less sure")
    parser.add_argument("--only", choices=NOUNS, action="append", help="a part of the table")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    parser.add_argument("--write-readme", action="store_true", help="put the table into the README")
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    rows: list[report.Row | report.Missing] = []
    for name in options.only or NOUNS:
        rows += NOUNS[name].rows(effort)
    report.show(rows)
    if options.json:
        options.json.write_text(report.as_json(rows), encoding="utf-8")
    if options.write_readme:
        report.write_readme(options.readme, rows)


main()

"""Rows of the comparison, as a table on the terminal, as JSON, and as the README's table."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

MEASURED = ("hal-core", "hal-cpu", "hal-opencl")
PEERS = ("tinygrad", "pyopencl", "numba", "warp-lang", "numpy")
_SCALE = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}


class Row(NamedTuple):
    """One thing measured. Times are seconds; `score` is what the target speaks of."""

    what: str
    ours: float
    floor_name: str
    floor: float
    score: float
    target: float
    at_least: bool = False  # the score is to reach the target, not to stay below it
    difference: bool = False  # the score is seconds over the floor, not a multiple of it
    peers: Mapping[str, float | str] = {}  # seconds, or why there are none

    @property
    def met(self) -> bool:
        return self.score >= self.target if self.at_least else self.score <= self.target


class Missing(NamedTuple):
    """A row that could not be measured here."""

    what: str
    why: str


def machine() -> dict[str, object]:
    found: dict[str, object] = {
        "cpu": _cpu_title(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    for name in (*MEASURED, *PEERS):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _cpu_title() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    titles = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return titles[0] if titles else platform.machine()


def table(rows: Iterable[Row | Missing]) -> Table:
    made = Table("what", "hal", "floor", "score", "target", "met", "others", title="hal-core speed")
    for row in rows:
        if isinstance(row, Missing):
            made.add_row(row.what, "-", "-", "-", "-", "-", row.why)
            continue
        cells = _cells(row)
        colour = "green" if row.met else "red"
        made.add_row(*cells[:5], f"[{colour}]{cells[5]}[/]", cells[6])
    return made


def _cells(row: Row) -> tuple[str, ...]:
    sign = "at least " if row.at_least else "at most "
    if row.difference:
        score, target = f"+{seconds(row.score)}", f"{sign}+{seconds(row.target)}"
    else:
        score, target = f"{row.score:.2f} x", f"{sign}{row.target:g} x"
    others = ", ".join(
        f"{name} {seconds(value) if isinstance(value, float) else value}"
        for name, value in row.peers.items()
    )
    floor = f"{seconds(row.floor)} ({row.floor_name})"
    return (row.what, seconds(row.ours), floor, score, target, "yes" if row.met else "no", others)


def seconds(value: float) -> str:
    """With the unit that leaves one to three digits before the point."""
    unit = next((u for u, scale in reversed(_SCALE.items()) if abs(value) * scale >= 1), "ns")
    return f"{value * _SCALE[unit]:.3g} {unit}"


def as_json(rows: Iterable[Row | Missing]) -> str:
    entries = [row._asdict() | ({"met": row.met} if isinstance(row, Row) else {}) for row in rows]
    return json.dumps({"machine": machine(), "rows": entries}, indent=1) + "\n"


def write_readme(path: Path, rows: Iterable[Row | Missing]) -> None:
    """Puts the table between the README's markers."""
    facts = machine()
    lines = [
        f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}; times are medians, and "
        "a score is the median of ratios within one round.",
        "",
        "| what | hal | floor | score | target | met | others |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = (row.what, "", "", "", "", "", row.why) if isinstance(row, Missing) else _cells(row)
        lines.append(f"| {' | '.join(cells)} |")
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- bench -->")
    _, _, after = rest.partition("<!-- /bench -->")
    block = "\n".join(lines)
    path.write_text(f"{before}<!-- bench -->\n{block}\n<!-- /bench -->{after}", encoding="utf-8")


def show(rows: Iterable[Row | Missing]) -> None:
    Console(width=max(Console().width, 160)).print(table(rows))

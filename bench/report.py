"""Rows of the comparison, written as a table on the terminal, as JSON, and into a page."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.measure import OURS, Times

MEASURED = ("hal-core", "hal-cpu", "hal-cuda", "hal-opencl", "hal-ray")
PEERS = ("tinygrad", "pyopencl", "numba", "numpy")
_SCALE = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}


class Work(NamedTuple):
    """The bytes or operations of one run, from which the table computes the speed."""

    ours: float
    floor: float
    unit: str  # of 1e9 a second: "GB/s"

    def speed(self, seconds: float, amount: float) -> str:
        return f", {amount / seconds / 1e9:.3g} {self.unit}"


class Row(NamedTuple):
    """A measurement with a floor. Times are seconds; a score of 2 is twice the floor's speed."""

    what: str
    ours: float
    floor_name: str
    floor: float
    score: float
    target: float | None  # the least score; None: there is no promise
    peers: Mapping[str, float | str] = {}  # seconds, or the reason why there are none
    work: Work | None = None

    @property
    def met(self) -> bool:
        return self.target is None or self.score >= self.target


class Figure(NamedTuple):
    """A measurement without a floor."""

    what: str
    ours: float
    peers: Mapping[str, float | str] = {}
    work: Work | None = None


class Missing(NamedTuple):
    """A row that could not be measured here."""

    what: str
    why: str
    failed: bool = False  # it should have been measured


def beside(
    what: str, times: Times, floor: str, target: float | None, *, name: str = "",
    ours: str = OURS, peers: Mapping[str, float | str] = MappingProxyType({}),
) -> Row:  # fmt: skip
    """Make the row of one candidate beside another, which the table calls `name`."""
    pair = times.typical(ours), name or floor, times.typical(floor)
    return Row(what, *pair, times.ratio(floor, ours), target, dict(peers))


Rows = Iterable[Row | Figure | Missing]
HEADS = ("what", "hal", "floor", "score", "at least", "met", "others")


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


def table(rows: Rows, title: str = "hal-core speed") -> Table:
    made = Table(*HEADS, title=title)
    for row in rows:
        *cells, met, others = map(escape, _cells(row))
        colour = {"yes": "green", "no": "red"}.get(met, "none")
        made.add_row(*cells, f"[{colour}]{met}[/]", others)
    return made


def markdown(rows: Rows) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [HEADS, ("---",) * len(HEADS), *map(_cells, rows)]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in lines]


def _cells(row: Row | Figure | Missing) -> tuple[str, ...]:
    if isinstance(row, Missing):
        return (row.what, *("-",) * 5, row.why)
    work = row.work
    ours = seconds(row.ours) + (work.speed(row.ours, work.ours) if work else "")
    others = ", ".join(f"{name} {_other(value, work)}" for name, value in row.peers.items())
    if isinstance(row, Figure):
        return (row.what, ours, *("-",) * 4, others)
    floor = seconds(row.floor) + (work.speed(row.floor, work.floor) if work else "")
    met = "-" if row.target is None else "yes" if row.met else "no"
    target = "-" if row.target is None else f"{row.target:g} x"
    return (
        row.what, ours, f"{floor} ({row.floor_name})", f"{row.score:.2f} x", target, met, others,
    )  # fmt: skip


def _other(value: float | str, work: Work | None) -> str:
    if isinstance(value, str):
        return value
    return seconds(value) + (work.speed(value, work.ours) if work else "")


def seconds(value: float) -> str:
    """Format a time in the unit that leaves one to three digits before the point."""
    unit = next((u for u, scale in reversed(_SCALE.items()) if abs(value) * scale >= 1), "ns")
    return f"{value * _SCALE[unit]:.3g} {unit}"


def as_json(rows: Rows) -> str:
    entries = [row._asdict() | ({"met": row.met} if isinstance(row, Row) else {}) for row in rows]
    return json.dumps({"machine": machine(), "rows": entries}, indent=1) + "\n"


def from_json(text: str) -> list[Row | Figure | Missing]:
    return [_row(entry) for entry in json.loads(text)["rows"]]


def _row(entry: dict[str, Any]) -> Row | Figure | Missing:
    if "why" in entry:
        return Missing(**entry)
    entry["work"] = entry["work"] and Work(*entry["work"])
    if "floor" not in entry:
        return Figure(**entry)
    del entry["met"]
    return Row(**entry)


def write_table(path: Path, rows: Rows) -> None:
    """Write the table between the markers of its page."""
    facts = machine()
    lines = [
        f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}; times are medians. A "
        "score is a speed, as a multiple of the floor's: the median of the ratios of all pairs of "
        "rounds.",
        "",
        *markdown(rows),
    ]
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- bench -->")
    _, _, after = rest.partition("<!-- /bench -->")
    block = "\n".join(lines)
    path.write_text(f"{before}<!-- bench -->\n{block}\n<!-- /bench -->{after}", encoding="utf-8")


def show(rows: Rows) -> None:
    Console(width=max(Console().width, 160)).print(table(rows))

"""Records of a run of kit, examples and benchmarks on one device."""

from __future__ import annotations

from typing import Any, NamedTuple

import hal_core as hal
from bench import report


class Ended(NamedTuple):
    """The end of a process that ended by itself or was killed."""

    code: int
    seconds: float
    said: str

    @property
    def last_words(self) -> str:
        return "\n".join(self.said.strip().splitlines()[-12:])


class Kit(NamedTuple):
    """A run of the conformance kit; `report` is None if `hal check` wrote none."""

    pair: str
    ended: Ended
    report: dict[str, Any] | None


class Example(NamedTuple):
    name: str
    arguments: tuple[str, ...]
    ended: Ended | None  # None: the example was left out
    why: str = ""


class Table(NamedTuple):
    """Rows of the benchmarks; `ended` shows why there are none."""

    title: str
    ended: Ended
    rows: list[report.Row | report.Figure | report.Missing]


class Run(NamedTuple):
    """All contents of a page."""

    info: hal.DeviceInfo
    quick: bool
    absent: dict[str, str]  # compiler that cannot serve -> why
    facts: list[tuple[str, str]]
    kits: list[Kit]
    examples: list[Example]
    tables: list[Table]
    pending: list[str]  # parts that have not ended yet

    @property
    def failures(self) -> list[str]:
        """The parts that failed."""
        found = [f"the kit with {kit.pair}" for kit in self.kits if kit.ended.code]
        found += [f"{one.name}.py" for one in self.examples if one.ended and one.ended.code]
        found += [table.title for table in self.tables if table.ended.code]
        return found + ([] if self.kits or self.pending else ["no compiler serves"])

"""What a run of everything on one device found."""

from __future__ import annotations

from typing import Any, NamedTuple

import hal_core as hal
from bench import report


class Ended(NamedTuple):
    """A process that has ended, or was ended."""

    code: int
    seconds: float
    said: str

    @property
    def last_words(self) -> str:
        return "\n".join(self.said.strip().splitlines()[-12:])


class Kit(NamedTuple):
    """A run of the conformance kit; `report` is what `hal check` wrote, if it came to that."""

    pair: str
    ended: Ended
    report: dict[str, Any] | None


class Example(NamedTuple):
    name: str
    arguments: tuple[str, ...]
    ended: Ended | None  # None: left out
    why: str = ""


class Table(NamedTuple):
    """Rows of the benchmarks; `ended` tells where there are none."""

    title: str
    ended: Ended
    rows: list[report.Row | report.Figure | report.Missing]


class Run(NamedTuple):
    """Everything that a page is made of."""

    info: hal.DeviceInfo
    quick: bool
    absent: dict[str, str]  # compilers that do not serve here, and why
    facts: list[tuple[str, str]]
    kits: list[Kit]
    examples: list[Example]
    tables: list[Table]

    @property
    def failures(self) -> list[str]:
        """Empty where all is well."""
        found = [f"the kit with {kit.pair}" for kit in self.kits if kit.ended.code]
        found += [f"{one.name}.py" for one in self.examples if one.ended and one.ended.code]
        found += [table.title for table in self.tables if table.ended.code]
        return found + ([] if self.kits else ["no compiler serves"])

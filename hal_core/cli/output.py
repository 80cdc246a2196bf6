"""Tables as the commands print them, for people and for programs that read lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def console(stderr: bool = False, **options: Any) -> Console:
    """Return a console that prints text as it is, whatever brackets and colons it contains.

    In a pipe nothing wraps, as a program that reads the lines wants one for each row.
    """
    from rich.console import Console  # here: it takes longer than all of hal_core

    options["width"] = None if (sys.stderr if stderr else sys.stdout).isatty() else 10_000
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, **options)


def table(words: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Return a table with these columns; the columns of numbers are aligned to the right."""
    from rich.table import Table

    made = Table(box=None)
    for title in words:
        made.add_column(title, overflow="fold")
    for title in numbers:
        made.add_column(title, justify="right")
    return made


def seconds(value: float) -> str:
    """Return a time with its unit: `1.250 ms`."""
    for unit in ("s", "ms"):
        if value >= 1:
            return f"{value:.3f} {unit}"
        value *= 1000
    return f"{value:.1f} us"

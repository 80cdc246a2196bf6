"""`hal profile`: a program run under a profile, and where its time went."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hal_core.errors import InvalidArgument
from hal_core.profiling import ProfileEvent, profile

_LIMIT = 1_000_000  # events; the last ones are kept


class Line(NamedTuple):
    """All events of one device, kind and name."""

    device: str
    kind: str
    name: str  # of the kernel or the range
    times: int
    seconds: float  # in all
    nbytes: int


def lines(events: Iterable[ProfileEvent]) -> list[Line]:
    """What took longest first."""
    found: dict[tuple[str, str, str], Line] = {}
    for event in events:
        key = event.device, event.kind, event.name
        known = found.get(key) or Line(*key, 0, 0.0, 0)
        times, nbytes = known.times + 1, known.nbytes + event.nbytes
        found[key] = Line(*key, times, known.seconds + event.seconds, nbytes)
    return sorted(found.values(), key=lambda line: -line.seconds)


def run(path: str, arguments: Sequence[str]) -> int:
    """Run a Python file as `python FILE ARGUMENTS` would; its exit code. The table goes to stderr.

    Raises: InvalidArgument for a file that is none.
    """
    if not os.path.isfile(path):
        raise InvalidArgument("profile", "no such file", got=path, fix="Give a Python file.")
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    with profile(_LIMIT) as whole:
        code = _main(path)
        events, dropped = whole.events, whole.dropped
    sys.stdout.flush()
    _show(lines(events), dropped)
    return code


def _main(path: str) -> int:
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException:  # what was done up to there is told too
        traceback.print_exc()
        return 1
    return 0


def _show(found: list[Line], dropped: int) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(stderr=True, highlight=False, markup=False, width=_width())
    if not found:
        console.print("hal profile: no device did anything in this process.")
        return
    table = Table(box=None)
    for title in ("device", "kind", "name"):
        table.add_column(title, overflow="fold")
    for title in ("times", "total", "each", "bytes"):
        table.add_column(title, justify="right")
    for line in found:
        name = "" if line.name == line.kind else line.name
        each = _time(line.seconds / line.times)
        nbytes = str(line.nbytes) if line.nbytes else ""
        total = _time(line.seconds)
        table.add_row(line.device, line.kind, name, str(line.times), total, each, nbytes)
    console.print(table)
    if dropped:
        console.print(f"The last {_LIMIT} events; {dropped} before them are not counted.")


def _width() -> int | None:
    """A program that reads this wants one line each."""
    return None if sys.stderr.isatty() else 10_000


def _time(seconds: float) -> str:
    for unit in ("s", "ms"):
        if seconds >= 1:
            return f"{seconds:.3f} {unit}"
        seconds *= 1000
    return f"{seconds:.1f} us"

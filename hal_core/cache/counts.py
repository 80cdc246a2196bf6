"""How often the cache had what was asked for, and why not when it had not.

Counted in the process; at its end one line is added to a file of the folder, for `hal cache`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile

from hal_core.cache.files import read_own
from hal_core.concurrency import fork_safe_lock, renew_after_fork

HITS = "hits"
ABSENT, DAMAGED, FOREIGN = "absent", "damaged", "foreign"
UNREADABLE, OFF = "unreadable", "switched off"
REASONS = (ABSENT, DAMAGED, FOREIGN, UNREADABLE, OFF)

_FILE = "counts"
_LARGE = 64 << 10  # bytes, then the lines become one; counts added meanwhile may be lost

_lock = fork_safe_lock()  # a finalizer may compile in the middle
_here: dict[tuple[str, str], int] = {}  # (folder, HITS or a reason)


def count(place: str, what: str) -> None:
    with _lock:
        if not _here:
            atexit.unregister(_keep)
            atexit.register(_keep)
        _here[place, what] = _here.get((place, what), 0) + 1


def counted(place: str | None) -> dict[str, int]:
    """Of this process, or all that is known of one folder."""
    sums = _read(place) if place else {}
    with _lock:
        for (where, what), number in list(_here.items()):
            if place is None or place == where:
                sums[what] = sums.get(what, 0) + number
    return sums


def forget(place: str) -> None:
    with _lock:
        for key in [key for key in list(_here) if key[0] == place]:
            del _here[key]
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(place, _FILE))


def _keep() -> None:
    """At exit, for each folder that was used and is there."""
    counts = list(_here.items())  # a thread may still compile
    for place in {place for (place, _), _ in counts if place}:
        here = {what: number for (where, what), number in counts if where == place}
        with contextlib.suppress(OSError):
            if _add(os.path.join(place, _FILE), _line(here)) > _LARGE:
                _rewrite(place)


def _line(counts: dict[str, int]) -> bytes:
    return " ".join(f"{what}={number}" for what, number in counts.items()).encode() + b"\n"


def _add(path: str, line: bytes) -> int:
    """In one step, whoever else adds one; gives the size of the file."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
    try:
        os.write(handle, line)
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def _rewrite(place: str) -> None:
    number, temporary = tempfile.mkstemp(dir=place)
    with os.fdopen(number, "wb") as file:
        file.write(_line(_read(place)))
    os.replace(temporary, os.path.join(place, _FILE))


def _read(place: str) -> dict[str, int]:
    """The sum of all lines; what cannot be read counts nothing."""
    sums: dict[str, int] = {}
    try:
        text = read_own(os.path.join(place, _FILE)).decode("ascii", "replace")
    except OSError:
        return sums
    for word in text.split():
        what, _, number = word.partition("=")
        if what in (HITS, *REASONS) and number.isdecimal() and len(number) < 18:
            sums[what] = sums.get(what, 0) + int(number)
    return sums


renew_after_fork(_here.clear)  # a child counts for itself

"""The compile cache: one checked file an entry, shared by every process of a user.

An entry's name is the digest of everything that decides its content, so entries never go stale.
They hold plain bytes behind a header with the key and a checksum, are replaced atomically, and
nothing is ever unpickled. Whatever is wrong with an entry or with the folder is a miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import time
from typing import NamedTuple

from hal_core import config
from hal_core.cache.counts import ABSENT, DAMAGED, FOREIGN, HITS, OFF, UNREADABLE, count, counted
from hal_core.cache.counts import forget as forget_counts
from hal_core.cache.files import Foreign, read_own
from hal_core.concurrency import fork_safe_lock

log = logging.getLogger("hal_core")

_MAGIC = b"hal-cache-1\n"
_HEADER = len(_MAGIC) + 32 + 32  # magic, key, checksum
_CHECK_EVERY = 64  # stores between looks at the folder's size
_PREFIX = "new-"
_ABANDONED = 3600  # seconds after which what a process was writing is nobody's

LIMIT = config.declare(
    "HAL_CACHE_LIMIT", 512 << 20, "bytes of compiled kernels kept on disk", config.nbytes
)


class CacheStatistics(NamedTuple):
    """What is in the folder, and what loading from it came to."""

    folder: str  # empty: there is none
    entries: int
    nbytes: int
    limit: int  # bytes
    hits: int
    misses: int
    reasons: dict[str, int]  # of misses: how many for each of REASONS


_lock = fork_safe_lock()

_stores = 0
_unwritable: set[str] = set()  # folders that were complained about


def folder() -> str:
    """The folder of the cache; empty when there is none (switched off, or no home)."""
    if not config.CCACHE.read():
        return ""
    chosen = config.CACHE_DIR.read()
    if not chosen:
        import platformdirs

        try:
            chosen = platformdirs.user_cache_dir("hal-core", appauthor=False)
        except RuntimeError:  # no home
            return ""
        return chosen if os.path.isabs(chosen) else ""
    return os.path.abspath(chosen)


def load(key: str) -> bytes | None:
    """The bytes stored under `key`, or None: a miss, counted with its reason."""
    place = folder()
    if not place:
        count(place, OFF)
        return None
    path = _path(place, key)
    found = _checked(path, key)
    if isinstance(found, str):
        if found != ABSENT:
            log.debug("cache: %s is %s", path, found)
        count(place, found)
        return None
    count(place, HITS)
    with contextlib.suppress(OSError):
        os.utime(path)  # what was used last is evicted last
    return found


def store(key: str, content: bytes) -> None:
    """Keep `content`; a folder that cannot be written costs one log line, never an error."""
    global _stores
    place = folder()
    if not place:
        return
    path = _path(place, key)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        number, temporary = tempfile.mkstemp(prefix=_PREFIX, dir=os.path.dirname(path))
        try:
            with os.fdopen(number, "wb") as file:
                file.write(_header(key, content))
                file.write(content)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        if place not in _unwritable:
            _unwritable.add(place)
            log.warning("compile cache: %s cannot be written (%s): going without", place, error)
        return
    with _lock:
        _stores += 1
        due = _stores % _CHECK_EVERY == 1
    if due:
        evict(place)


def evict(place: str, limit: int | None = None) -> int:
    """Delete the entries used longest ago until `limit` bytes are left; gives how many went."""
    limit = LIMIT.read() if limit is None else limit
    entries = sorted(_entries(place), key=lambda entry: entry[0])
    total = sum(size for _, size, _ in entries)
    gone = 0
    for _, size, path in entries:
        if total <= limit:
            break
        try:
            os.unlink(path)
        except OSError:  # another process was faster
            continue
        total -= size
        gone += 1
    _clear_abandoned(place)
    return gone


def clear() -> int:
    """Delete every entry, and what was counted; gives how many entries there were."""
    place = folder()
    if not place:
        return 0
    forget_counts(place)
    return evict(place, -1)


def statistics(everyone: bool = False) -> CacheStatistics:
    """`hits` and `misses` of this process; with `everyone` of this folder, since it was cleared,
    by this process and all that have ended."""
    place = folder()
    entries = _entries(place) if place else []
    counts = counted(place if everyone else None)
    hits = counts.pop(HITS, 0)
    nbytes = sum(size for _, size, _ in entries)
    return CacheStatistics(
        place, len(entries), nbytes, LIMIT.read(), hits, sum(counts.values()), counts
    )


# -- one entry


def _checked(path: str, key: str) -> bytes | str:
    """What was stored under `key`, or the reason of a miss."""
    try:
        data = read_own(path)
    except FileNotFoundError:
        return ABSENT
    except Foreign:
        return FOREIGN
    except OSError:
        return UNREADABLE
    content, header = data[_HEADER:], data[:_HEADER]
    expected = _header(key, content)
    if header == expected:
        return content
    names = len(_MAGIC) + 32
    whole = len(header) == _HEADER and header[names:] == expected[names:]
    return FOREIGN if whole and header[:names] != expected[:names] else DAMAGED


def _path(place: str, key: str) -> str:
    return os.path.join(place, key[:2], key)


def _header(key: str, content: bytes) -> bytes:
    return _MAGIC + bytes.fromhex(key) + hashlib.sha256(content).digest()


def _entries(place: str) -> list[tuple[float, int, str]]:
    """(last use, bytes, path) of every entry; foreign files in the folder are left alone."""
    return [
        (facts.st_mtime, facts.st_size, path)
        for path, facts in _files(place)
        if len(os.path.basename(path)) == 64
    ]


def _clear_abandoned(place: str) -> None:
    """What a process that was killed left half written."""
    for path, facts in _files(place):
        if os.path.basename(path).startswith(_PREFIX) and time.time() - facts.st_mtime > _ABANDONED:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _files(place: str) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    try:
        shelves = [entry.path for entry in os.scandir(place) if len(entry.name) == 2]
    except OSError:
        return found
    for shelf in shelves:
        with contextlib.suppress(OSError):
            for entry in os.scandir(shelf):
                with contextlib.suppress(OSError):  # gone meanwhile
                    found.append((entry.path, entry.stat(follow_symlinks=False)))
    return found

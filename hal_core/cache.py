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
import stat
import tempfile
import threading
from typing import NamedTuple

from hal_core import config

log = logging.getLogger("hal_core")

_MAGIC = b"hal-cache-1\n"
_HEADER = len(_MAGIC) + 32 + 32  # magic, key, checksum
_CHECK_EVERY = 64  # stores between looks at the folder's size
_LARGEST = 1 << 30  # bytes of an entry
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_OPEN_FLAGS |= getattr(os, "O_BINARY", 0)

LIMIT = config.declare(
    "HAL_CACHE_LIMIT", 512 << 20, "bytes of compiled kernels kept on disk", config.nbytes
)


class CacheStatistics(NamedTuple):
    """`hits`, `misses` and `reasons` count this process; `entries`, `nbytes` what is on disk."""

    entries: int
    nbytes: int
    hits: int
    misses: int
    reasons: dict[str, int]  # of misses


_lock = threading.Lock()


def _after_fork_in_child() -> None:
    """Another thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

_reasons: dict[str, int] = {}
_hits = 0
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
    global _hits
    place = folder()
    if not place:
        _miss("off")
        return None
    path = _path(place, key)
    try:
        data = _content(path)
    except FileNotFoundError:
        _miss("new")
        return None
    except OSError as error:
        log.debug("cache: %s cannot be read: %s", path, error)
        _miss("unreadable")
        return None
    content = data[_HEADER:]
    if data[:_HEADER] != _header(key, content):
        log.debug("cache: %s is damaged", path)
        _miss("damaged")
        return None
    with _lock:
        _hits += 1
    with contextlib.suppress(OSError):
        os.utime(path)  # what was used last is evicted last
    return content


def store(key: str, content: bytes) -> None:
    """Keep `content`; a folder that cannot be written costs one log line, never an error."""
    global _stores
    place = folder()
    if not place:
        return
    path = _path(place, key)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        number, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
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
    return gone


def clear() -> int:
    """Delete every entry; gives how many there were."""
    place = folder()
    return evict(place, -1) if place else 0


def statistics() -> CacheStatistics:
    place = folder()
    entries = _entries(place) if place else []
    with _lock:
        return CacheStatistics(
            len(entries),
            sum(size for _, size, _ in entries),
            _hits,
            sum(_reasons.values()),
            dict(_reasons),
        )


def _content(path: str) -> bytes:
    """The bytes of an entry. Raises: OSError, also for what only looks like one: a link, a pipe, a
    file that another user owns or may write - its code would run as ours."""
    handle = os.open(path, _OPEN_FLAGS)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        foreign = hasattr(os, "geteuid") and facts.st_uid not in (0, os.geteuid())
        if not stat.S_ISREG(facts.st_mode) or foreign or facts.st_mode & 0o022:
            raise PermissionError("not a file of this user alone")
        if facts.st_size > _LARGEST:
            raise OSError(f"{facts.st_size} bytes, more than {_LARGEST}")
        return file.read()


def _miss(reason: str) -> None:
    with _lock:
        _reasons[reason] = _reasons.get(reason, 0) + 1


def _path(place: str, key: str) -> str:
    return os.path.join(place, key[:2], key)


def _header(key: str, content: bytes) -> bytes:
    return _MAGIC + bytes.fromhex(key) + hashlib.sha256(content).digest()


def _entries(place: str) -> list[tuple[float, int, str]]:
    """(last use, bytes, path) of every entry; foreign files in the folder are left alone."""
    found = []
    try:
        shelves = [entry.path for entry in os.scandir(place) if len(entry.name) == 2]
        for shelf in shelves:
            for entry in os.scandir(shelf):
                if len(entry.name) == 64:
                    facts = entry.stat()
                    found.append((facts.st_mtime, facts.st_size, entry.path))
    except OSError:
        pass
    return found

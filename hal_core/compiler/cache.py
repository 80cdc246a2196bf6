"""The cache of compiled kernels on disk, shared by all processes of one user.

Each entry is one file. Its name is the digest of everything that decides its content, so an entry
never becomes out of date. It holds plain bytes after a header with the key and a checksum, is
replaced atomically, and nothing is ever unpickled. A fault of an entry or of the folder is a miss.
"""

from __future__ import annotations

import errno
import hashlib
import io
import logging
import os
import re
import stat
import time
from collections import Counter
from typing import NamedTuple

from hal_core import config
from hal_core.concurrency import fork_safe_lock, suppress, unless_of_a_signal
from hal_core.files import write_whole

log = logging.getLogger("hal_core")

_MAGIC = b"hal-cache-1\n"
_HEADER_NBYTES = len(_MAGIC) + 32 + 32  # magic, key, checksum
_STORES_PER_CHECK = 64  # listing the folder costs more than storing an entry
_HALF_WRITTEN = ".new-"  # stands behind the key in the name of a file that is being written
_NAME = re.compile(rf"[0-9a-f]{{64}}({re.escape(_HALF_WRITTEN)}\w*)?")
_ABANDONED_SECONDS = 3600  # the process that wrote a file this old has been killed
# NONBLOCK: opening a pipe that nobody writes would wait. NOFOLLOW: a link leads to any file.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_FLAGS |= getattr(os, "O_BINARY", 0)


class CacheStatistics(NamedTuple):
    """Contents of the cache's folder, and hits and misses of this process."""

    folder: str  # empty: the cache is off
    entries: int
    nbytes: int
    limit: int  # bytes
    hits: int
    misses: int
    reasons: dict[str, int]  # of misses: absent, damaged, foreign, unreadable, switched off


_lock = fork_safe_lock()
_hits = _stores = 0
_misses: Counter[str] = Counter()  # reason -> how many
_unwritable: set[str] = set()  # folders that the log has named
_absolute: dict[str, str] = {}  # a relative folder is that of its first use; programs change theirs


def folder() -> str:
    """Return the cache's folder; empty when the cache is switched off or there is no home."""
    if not config.CCACHE.read():
        return ""
    if chosen := config.CACHE_DIR.read():
        return _absolute.setdefault(chosen, os.path.abspath(chosen))
    import platformdirs

    with suppress(RuntimeError):  # no home
        chosen = platformdirs.user_cache_dir("hal-core", appauthor=False)
    return chosen if os.path.isabs(chosen) else ""


def load(key: str) -> bytes | None:
    """Return the bytes stored under `key`, or None: a miss, counted with its reason."""
    global _hits
    place = folder()
    path = _path(place, key)
    content, reason = _read_entry(path, key) if place else (None, "switched off")
    with _lock:
        if content is None:
            _misses[reason] += 1
        else:
            _hits += 1
    if content is not None:
        with suppress(OSError):
            os.utime(path)  # eviction begins with the entry used longest ago
    elif reason not in ("absent", "switched off"):
        log.debug("cache: %s is %s", path, reason)
    return content


def store(key: str, content: bytes) -> None:
    """Store `content` under `key`. A folder that cannot be written costs one log line, no error."""
    global _stores
    place = folder()
    if not place:
        return
    path = _path(place, key)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        prefix = key + _HALF_WRITTEN
        write_whole(path, _header(key, content), content, prefix=prefix, permissions=0o600)
    except unless_of_a_signal(OSError) as error:
        taken = isinstance(error, (PermissionError, IsADirectoryError)) and os.path.exists(path)
        if taken:  # by a folder; on Windows also by the same entry, while another process reads it
            return
        if place not in _unwritable:
            _unwritable.add(place)
            log.warning("compile cache: %s cannot be written (%s): going without", place, error)
        return
    with _lock:
        _stores += 1
        due = _stores % _STORES_PER_CHECK == 1
    if due:
        evict(place)


def evict(place: str, limit: int | None = None) -> int:
    """Delete the entries used longest ago until `limit` bytes are left; return how many.

    Also deletes the half-written files of processes that were killed.
    """
    limit = config.CACHE_LIMIT.read() if limit is None else limit
    files = _files(place)
    for path, facts in files:
        abandoned = time.time() - facts.st_mtime > _ABANDONED_SECONDS
        if abandoned and _HALF_WRITTEN in os.path.basename(path):
            with suppress(OSError):
                os.unlink(path)
    if sum(facts.st_size for _, facts in files) <= limit:
        return 0  # as mostly; to read every header would take as long again
    entries = sorted(filter(_is_entry, files), key=lambda entry: entry[1].st_mtime)
    total = sum(facts.st_size for _, facts in entries)
    deleted = 0
    for path, facts in entries:
        if total <= limit:
            break
        with suppress(OSError):  # another process was faster
            os.unlink(path)
            total -= facts.st_size
            deleted += 1
    return deleted


def clear() -> int:
    """Delete every entry; return how many there were."""
    return evict(folder(), -1)


def statistics() -> CacheStatistics:
    """Return what the folder holds now, and the hits and misses of this process."""
    place = folder()
    sizes = [facts.st_size for _, facts in filter(_is_entry, _files(place))]
    with _lock:
        hits, reasons = _hits, dict(_misses)
    limit, misses = config.CACHE_LIMIT.read(), sum(reasons.values())
    return CacheStatistics(place, len(sizes), sum(sizes), limit, hits, misses, reasons)


# -- one entry


def _read_entry(path: str, key: str) -> tuple[bytes | None, str]:
    """Return the content stored under `key`, or None and the reason of the miss.

    An entry would run as code of this user. So it is neither a link nor a pipe, and only this
    user, or root, can have written it.
    """
    try:
        with io.open(path, "rb", opener=_open) as file:  # noqa: UP020  # lives while Python ends
            # The facts of the opened file: nobody can exchange it between check and read.
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return None, "foreign"
            # On Windows the mode says nothing, and the folder is the user's alone.
            if hasattr(os, "geteuid") and (
                facts.st_uid not in (0, os.geteuid()) or facts.st_mode & 0o022
            ):
                return None, "foreign"
            data = file.read()
    except FileNotFoundError:
        return None, "absent"
    except unless_of_a_signal(OSError) as error:
        return None, "foreign" if error.errno == errno.ELOOP else "unreadable"
    content, header = data[_HEADER_NBYTES:], data[:_HEADER_NBYTES]
    expected = _header(key, content)
    if header == expected:
        return content, ""
    # A correct checksum under another key: a whole entry, but not the one of this name.
    return None, "foreign" if header[-32:] == expected[-32:] else "damaged"


def _open(path: str, _: int) -> int:
    return os.open(path, _FLAGS)


def _path(place: str, key: str) -> str:
    return os.path.join(place, key[:2], key)


def _header(key: str, content: bytes) -> bytes:
    return _MAGIC + bytes.fromhex(key) + hashlib.sha256(content).digest()


# -- the folder


def _files(place: str) -> list[tuple[str, os.stat_result]]:
    """List the files that are named by a key and stand in the folder of its first two digits.

    No link is followed: it may lead to files that are not the cache's.
    """
    shelves = [one for one in _scan(place) if one.is_dir(follow_symlinks=False)]
    found: list[tuple[str, os.stat_result]] = []
    for file in (file for shelf in shelves for file in _scan(shelf.path)):
        shelf_name = os.path.basename(os.path.dirname(file.path))
        if _NAME.fullmatch(file.name) and file.name[:2] == shelf_name:
            with suppress(OSError):  # another process has deleted it
                facts = file.stat(follow_symlinks=False)
                found += [(file.path, facts)] if stat.S_ISREG(facts.st_mode) else []
    return found


def _is_entry(file: tuple[str, os.stat_result]) -> bool:
    """Tell whether a file of `_files` begins as the entry of its name does."""
    path, name = file[0], os.path.basename(file[0])
    if _HALF_WRITTEN in name:
        return False
    start = _MAGIC + bytes.fromhex(name)
    with suppress(OSError), io.open(path, "rb", opener=_open) as entry:  # noqa: UP020
        return entry.read(len(start)) == start
    return False


def _scan(folder: str) -> list[os.DirEntry[str]]:
    """List what a folder holds; nothing when it has no name or cannot be read."""
    with suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []

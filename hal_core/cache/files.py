"""Reading files that may hold anything, and may be anybody's."""

from __future__ import annotations

import errno
import os
import stat

LARGEST = 1 << 30  # bytes
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_FLAGS |= getattr(os, "O_BINARY", 0)


class Foreign(OSError):
    """Not a file of this user alone: a link, a pipe, one that another user owns or may write. What
    it holds would run as this user's code."""


def read_own(path: str) -> bytes:
    """All of a file that only this user, or root, can have written. Raises: Foreign, OSError."""
    try:
        handle = os.open(path, _FLAGS)
    except OSError as error:
        raise Foreign(path) if error.errno == errno.ELOOP else error from None
    try:
        facts = os.fstat(handle)
        if stat.S_ISDIR(facts.st_mode):
            raise IsADirectoryError(path)
        others = hasattr(os, "geteuid") and facts.st_uid not in (0, os.geteuid())
        if not stat.S_ISREG(facts.st_mode) or others or facts.st_mode & 0o022:
            raise Foreign(path)
        if facts.st_size > LARGEST:
            raise OSError(f"{path} has {facts.st_size} bytes, more than {LARGEST}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)

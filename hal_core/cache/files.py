"""Safe reading of a file in a folder that others may be able to write."""

from __future__ import annotations

import errno
import os
import stat

LARGEST_NBYTES = 1 << 30
# NONBLOCK: opening a pipe that nobody writes would wait. NOFOLLOW: a link leads to any file.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_FLAGS |= getattr(os, "O_BINARY", 0)


class Foreign(OSError):
    """The file is a link, a pipe, or one that another user owns or may write.

    Its content would run as code of this user.
    """


def read_own(path: str) -> bytes:
    """Read a whole file that only this user, or root, can have written. Raises: Foreign, OSError.

    All checks look at the opened file, so nobody can exchange it between check and read.
    """
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
        if facts.st_size > LARGEST_NBYTES:
            raise OSError(f"{path} has {facts.st_size} bytes, more than {LARGEST_NBYTES}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)

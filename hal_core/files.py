"""Check paths, write files whole, and explain what the system refuses."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial

from hal_core.concurrency import suppress, unless_of_a_signal
from hal_core.errors import HalError, InvalidArgument


class FileFault(InvalidArgument, OSError):
    """A file that cannot be read or written; `errno` and `filename` are the system's."""


class NoSuchFile(FileFault, FileNotFoundError):
    pass


class FileForbidden(FileFault, PermissionError):
    pass


class IsFolder(FileFault, IsADirectoryError):
    pass


class NotAFolder(FileFault, NotADirectoryError):
    pass


_FAULTS = {kind.__bases__[1]: kind for kind in (NoSuchFile, FileForbidden, IsFolder, NotAFolder)}


def as_path(path: object, operation: str) -> str:
    """Return a path as text. Raises: InvalidArgument for an object that can name no file."""
    try:
        text = os.fsdecode(path)  # type: ignore[arg-type]  # it raises TypeError
        if not text or b"\0" in os.fsencode(text):
            raise ValueError
    except (TypeError, ValueError):
        fix = 'Give it as text, or as a pathlib.Path: "folder/name".'
        got = path if isinstance(path, (str, bytes)) else type(path).__name__
        raise InvalidArgument(operation, "not the path of a file", got=got, fix=fix) from None
    return text


@contextmanager
def explained(operation: str, path: str, problem: str) -> Iterator[None]:
    """Raise what the system refuses in the block as a HalError, which is the OSError, too."""
    try:
        yield
    except unless_of_a_signal(OSError) as error:
        if isinstance(error, HalError):
            raise
        kind = _FAULTS.get(type(error), FileFault)
        fix = "Name a file in this folder." if kind is IsFolder else None
        fault = kind(operation, f"{problem}: {error.strerror or error}", got=path, fix=fix)
        fault.errno, fault.strerror, fault.filename = error.errno, error.strerror, path
        raise fault from error


def write_whole(
    path: str, *parts: bytes, prefix: str = ".hal-new-", permissions: int = 0o666
) -> None:
    """Write a file whole or not at all, whichever other threads and processes write it.

    The parts go to a new file beside it, never through a link, and that file takes its place.
    Raises: OSError.
    """
    half = os.path.join(os.path.dirname(path), prefix + os.urandom(8).hex())
    try:
        # "x" refuses a name that is there, also one that is a link.
        # The builtin `open` is gone while Python ends.
        # The opener is no function of Python's: in one Ctrl-C may come behind the call.
        opener = partial(os.open, mode=permissions)
        with io.open(half, "xb", opener=opener) as file:  # noqa: UP020
            file.writelines(parts)
        os.replace(half, path)
    except BaseException:
        with suppress(OSError):  # Ctrl-C may come behind the replacement
            os.unlink(half)
        raise


def save(operation: str, path: object, *parts: bytes) -> None:
    """Write a file as `write_whole`; a pipe or a device, such as /dev/stdout, as it is.

    Raises: InvalidArgument, which is the OSError, too.
    """
    text = as_path(path, operation)
    with explained(operation, text, "the file cannot be written"):
        if os.path.exists(text) and not os.path.isfile(text):
            with io.open(text, "wb") as stream:  # noqa: UP020
                stream.writelines(parts)
        else:
            write_whole(text, *parts)


def missing(operation: str, path: str, fix: str) -> InvalidArgument:
    """Return the error for a path that is no file, with the name of one that is near."""
    if os.path.isdir(path):
        return InvalidArgument(operation, "a folder, not a file", got=path, fix=fix)
    if os.path.exists(path):
        return InvalidArgument(operation, "a pipe or a device, not a file", got=path, fix=fix)
    folder, name = os.path.split(path)
    beside: list[str] = []
    with suppress(OSError):
        beside = os.listdir(folder or ".")
    near = get_close_matches(name, [one for one in beside if one.endswith(".py")], 1)
    fix = f"Did you mean {os.path.join(folder, near[0])}?" if near else fix
    return InvalidArgument(operation, "no such file", got=path, fix=fix)

"""The files that a C compiler has read, remembered behind the object in the compile cache.

object | mark | checksum of the files, 32 bytes | path NUL path NUL ... | end | its seal

When one of them changes, the object is stale. The cache's key has those that the text includes, and
lacks the system's headers, and any that a macro names.
"""

from __future__ import annotations

import hashlib
import os
import re

from hal_core.concurrency import suppress, unless_of_a_signal

_MARK, _END = b"\nhal-cpu files\n", b"\nend\n"
_NBYTES = 32  # of a SHA-256
_UNKNOWN = bytes(_NBYTES)  # which no files have: the object is compiled again each time

# The assembler reads these files, and a compiler does not list them.
_READS_MORE = re.compile(rb"\.(incbin|include)\b")


def with_files(image: bytes, text_path: str, rule_path: str) -> bytes:
    """Return an object followed by what its compiler read: the text, and the files of a rule for
    make, which it wrote."""
    try:
        with open(rule_path, encoding="utf-8", errors="surrogateescape") as file:
            rule = file.read()
        paths = [path for path in listed(rule) if path != text_path]
        more = any(map(_reads_more, [text_path, *paths]))
        checksum = _UNKNOWN if more else _checksum(paths)
    except unless_of_a_signal(OSError):  # an option such as -MF has moved the rule
        paths, checksum = [], _UNKNOWN
    return image + _MARK + checksum + os.fsencode("\0".join(paths)) + _END


def is_current(image: bytes) -> bool:
    """Return whether the files that the object was compiled from are as they were."""
    facts = image.rpartition(_MARK)[2].partition(_END)[0]
    paths = os.fsdecode(facts[_NBYTES:])
    with suppress(OSError):
        return _checksum(paths.split("\0") if paths else []) == facts[:_NBYTES]
    return False


def listed(rule: str) -> list[str]:
    r"""Return the files of a rule for make: `made: a.h b\ c.h` -> `a.h`, `b c.h`."""
    names = rule.replace("\\\n", " ").partition(": ")[2]
    found = re.findall(r"(?:\\[ #]|\S)+", names)
    return [re.sub(r"\\([ #])|\$(\$)", r"\1\2", name) for name in found]


def _checksum(paths: list[str]) -> bytes:
    state = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            state.update(hashlib.file_digest(file, "sha256").digest())
    return state.digest()


def _reads_more(path: str) -> bool:
    with open(path, "rb") as file:
        return _READS_MORE.search(file.read()) is not None

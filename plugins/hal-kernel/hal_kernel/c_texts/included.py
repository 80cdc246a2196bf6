"""The files that a text includes, found without a compiler: the compile cache's key has them.

#include "a.h"         beside the file that says so, and in each folder
#include NAME          which the preprocessor knows alone: every file below the folders counts

Both branches of an #if count, comments too, and each place where a compiler may look: what is found
is what a compiler reads, or more. A file that lies elsewhere belongs to the compiler itself.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hal_core.concurrency import unless_of_a_signal
from hal_core.errors import InvalidArgument

if TYPE_CHECKING:
    from hal_core.source import Source

_BLANK = r"(?:\s|/\*.*?\*/)*"
_DIRECTIVE = re.compile(
    rf"(?:(?:#|%:|\?\?=){_BLANK}(?:include|include_next|import|embed)\b"
    rf'|\b__has_(?:include|include_next|embed)\s*\(){_BLANK}(?:["<]([^">\n]+)[">])?',
    re.DOTALL,
)
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")


def digest_of_headers(source: Source[Any]) -> str:
    """Return a digest of the files that a text includes, and of those that they include.

    Raises: InvalidArgument for a folder or a file that cannot be read.
    """
    state, folders = hashlib.sha256(), source.includes
    pending, seen = [(source.text, "")], set[str]()  # texts, and the folders that they lie in
    try:
        for folder in folders:
            os.scandir(folder).close()
        while pending:
            text, own = pending.pop()
            for name in _DIRECTIVE.findall(_CONTINUED.sub("", text)):
                beside = (os.path.join(place, name) for place in (own, *folders))
                for path in beside if name else _below(folders):
                    if path in seen or not os.path.isfile(path):  # reading a pipe would not end
                        continue
                    seen.add(path)
                    with open(path, "rb") as file:
                        content = hashlib.file_digest(file, "sha256").digest()
                        state.update(repr((name, content)).encode())
                        if name:
                            file.seek(0)
                            pending.append((file.read().decode("latin-1"), os.path.dirname(path)))
    except unless_of_a_signal(OSError) as error:
        problem = f"an include folder cannot be read: {error}"
        raise InvalidArgument("compile", problem, got=error.filename) from None
    return state.hexdigest()


def _below(folders: tuple[str, ...]) -> Iterator[str]:
    """List every file below the folders, in an order that is always the same."""
    seen = set()
    for folder in folders:
        for root, below, files in os.walk(folder, followlinks=True):
            real = os.path.realpath(root)
            # A link may lead to a folder above itself.
            below[:] = sorted(below) if real not in seen else []
            seen.add(real)
            yield from (os.path.join(root, name) for name in sorted(files))

"""Compiler options of `Source` kernels: refuse those that the compile cache cannot follow."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hal_core.errors import InvalidArgument


def refuse_files(
    options: Iterable[str], names_file: re.Pattern[str], operation: str, device: str
) -> None:
    """Refuse an option that makes the compiler read a file, such as `-I` or `-include`.

    The key of the compile cache holds the option's text and not the file's content, so a changed
    file would give the old machine code. `names_file` matches the beginning of such options.

    Raises: InvalidArgument.
    """
    for option in options:
        if names_file.match(option.strip()):
            problem = "options cannot name files: the compile cache would not see them change"
            fix = "Give folders of headers with includes=."
            raise InvalidArgument(operation, problem, got=option, device=device, fix=fix)

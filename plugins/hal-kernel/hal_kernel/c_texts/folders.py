"""Folders for the files that the programs of a compiler read and write."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from hal_core.concurrency import unless_of_a_signal
from hal_core.errors import CompileError, HalError


@contextmanager
def temporary_folder(operation: str, device: str) -> Iterator[str]:
    """Make an empty folder for the files of a compiler, and delete it behind the block.

    Raises: CompileError for what the system refuses, also inside the block.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="hal-") as folder:
            yield folder
    except unless_of_a_signal(OSError) as error:
        if isinstance(error, HalError):
            raise
        problem = f"no folder for temporary files, or no program to run: {error}"
        fix = "Set TMPDIR to a folder that has room and that you may write to."
        raise CompileError(operation, problem, device=device, fix=fix) from error

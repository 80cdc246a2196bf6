"""Modules that are imported at their first use, and threads in the middle of an import."""

from __future__ import annotations

import sys
from importlib import import_module
from types import FrameType
from typing import Any

from hal_core.errors import InvalidState

IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


def refuse_at_exit(operation: str) -> None:
    """Refuse what may import a module while Python ends. Raises: InvalidState."""
    if getattr(sys, "meta_path") is None:  # noqa: B009  # an import fails from then on
        problem, fix = "Python is ending, and imports nothing more", "Do it before, or by atexit."
        raise InvalidState(operation, problem, fix=fix)


class Late:
    """A module that the first use of an attribute imports. While Python ends it stays usable.

    An import statement fails by then, for modules that are loaded, too.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if "_module" not in vars(self):
            refuse_at_exit(f"import {self._name}")
            self._module = import_module(self._name)
        value = getattr(self._module, attribute)
        setattr(self, attribute, value)  # no call of Python from now on
        return value


def is_importing() -> bool:
    """Return True in the middle of an import, when this thread holds import locks."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False

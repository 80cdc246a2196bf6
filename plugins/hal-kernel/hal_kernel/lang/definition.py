"""Functions in the kernel language as a module has them: their text is kept, and they pickle.

Python pickles functions by name. The kernel of a script, a notebook or a factory would then be
lost, because the other process has no such name to import. So it is pickled as its IR, which is all
that a device compiles, and which has the code of the functions that it calls.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from hal_core.concurrency import refuse_at_exit

if TYPE_CHECKING:
    from typing import Self


class Definition:
    """A function that was defined in the kernel language; kernels and what they call."""

    def __init__(self, function: FunctionType) -> None:
        # `inspect` and documentation tools look for these attributes.
        self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        # Read now and not at the first use, because an edit of the file must not change it.
        self._lines = _current_lines(function)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name, as functions are, if an import finds it. Other kernels are pickled as
        their IR, with the values that they capture now.

        Raises: KernelSyntaxError as `lower` does, for a kernel that is pickled as IR; Unsupported
        for a function with `@hal.func` that no import finds.
        """
        refuse_at_exit(f"pickle {self.__name__}")
        return self.__qualname__ if self._is_importable() else self._by_value()

    def _by_value(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _is_importable(self) -> bool:
        """Tell whether importing the module and looking up the name gives this very object."""
        if self.__module__ == "__main__":
            return False
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        return found is self and _is_found(self.__module__)

    def __copy__(self) -> Self:
        return self  # as Python copies functions

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _current_lines(function: FunctionType) -> Sequence[str]:
    """Return the lines of the function's file as they are now; linecache may have older ones.

    Raises: InvalidState while Python ends, when nothing could read the text.
    """
    refuse_at_exit(f"read {function.__name__}")
    filename = function.__code__.co_filename
    linecache.checkcache(filename)
    return linecache.getlines(filename, function.__globals__)


def _is_found(name: str) -> bool:
    """Tell whether another process would find this module's file under its name.

    `importlib.util.find_spec` cannot tell: it looks into `sys.modules` first, where a program may
    have put a module that no file has.
    """
    module, (parent, _, _) = sys.modules.get(name), name.rpartition(".")
    spec = getattr(module, "__spec__", None)
    if spec is None or (parent and not _is_found(parent)):
        return False
    path = sys.modules[parent].__path__ if parent else None
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]  # as importlib
    specs = (finder.find_spec(name, path) for finder in finders)
    found = next((found for found in specs if found is not None), None)
    return found is not None and found.origin == spec.origin

"""Pickle kernels and the functions they call: by name if an import finds the object there.

Python pickles functions by name. The kernel of a script, a notebook or a factory would then be
lost, because the other process has no such name to import. So it is pickled as its IR, which is all
that a device compiles, and which has the code of the functions that it calls.
"""

from __future__ import annotations

import copyreg
import sys
from typing import Any

from hal_core.errors import Unsupported
from hal_kernel.lang.func import InlineFunction
from hal_kernel.lang.function import KernelFunction

Reduced = str | tuple[Any, ...]  # what pickle asks `__reduce__` for


def reduce_kernel(kernel: KernelFunction) -> Reduced:
    """Return what pickle writes for a kernel. Raises: KernelSyntaxError as `lower` does."""
    if _is_importable(kernel):
        return kernel.__qualname__
    state = {**vars(kernel), "_kernel": kernel.lower(), "_lines": ()}
    state.pop("__wrapped__", None)  # pickle knows functions by name only
    return copyreg.__newobj__, (KernelFunction,), state  # type: ignore[attr-defined]


def reduce_function(function: InlineFunction) -> Reduced:
    """Return the name under which an import finds a function with `@hal.func`.

    Raises: Unsupported where none does.
    """
    if _is_importable(function):
        return function.__qualname__
    raise Unsupported(
        f"pickle func {function.__name__}", "another process cannot import it",
        fix="Send a kernel that calls it, which has its code, or define it in a module of a file.",
    )  # fmt: skip


def _is_importable(made: KernelFunction | InlineFunction) -> bool:
    """Tell whether importing the module and looking up the name gives this very object."""
    if made.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(made.__module__)
    for part in made.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is made and _is_found(made.__module__)


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

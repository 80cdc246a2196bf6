"""Functions written as text for one kernel's signature, and the storage that they share.

A loop over the arguments costs as much again as a launch itself, so a launch is generated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def define(text: str, name: str, title: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Return the function `name` that `text` defines over `names`, its global variables.

    Tracebacks show `title` in the place of a file.
    """
    exec(compile(text, f"<{title}>", "exec"), names)
    # Taken out of its own globals: without that cycle it goes with its last user, at once.
    function: Callable[..., Any] = names.pop(name)
    return function


def spare_storage(make: Callable[[], Any], *ready: Any) -> dict[str, Any]:
    """Return `take`, `make` and `give_back`, names for the text of a launch.

    Each launch in progress owns its argument storage: another thread, a signal handler or a
    finalizer may launch in the middle of it. `take()` raises IndexError when all storage is in
    use; `make()` then makes one more, which the launch gives back like any other.
    """
    spare = list(ready)
    return {"take": spare.pop, "make": make, "give_back": spare.append}  # one step under the GIL

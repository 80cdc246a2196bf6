"""A forked child and its parent's drivers: what is refused, and what is never let go.

Why, and what it costs: docs/design/fork.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from hal_core.errors import ForkError
from hal_core.living import Living

if TYPE_CHECKING:
    from hal_core.device import Compiled

devices: Living[Compiled] = Living()  # all that were made here, by whomever
kept: list[object] = []  # a child's, of drivers it may not touch; empty anywhere else


def survives(capabilities: frozenset[str]) -> bool:
    return "subprocess_fork" in capabilities


def refusal(operation: str, device: str) -> ForkError:
    return ForkError(
        operation,
        "the parent process used this driver, which does not survive a fork",
        device=device,
        fix='Start the process with multiprocessing.get_context("spawn"), or fork before '
        "the first use.",
    )


def refusing(operation: str, device: str) -> Callable[..., NoReturn]:
    """A method that raises that, to be put in the place of one."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise refusal(operation, device)

    return refuse


def nothing(*_: Any) -> None:
    """In the place of a method that would call the driver from a finalizer."""


def keep(*things: object) -> None:
    """Never let go of them, at exit neither: a vendor's own finalizer would call the driver, and
    wait for threads that only the parent has."""
    if not kept:
        try:
            from ctypes import py_object, pythonapi
        except ImportError:  # a Python without it; the list goes at exit
            pass
        else:
            pythonapi.Py_IncRef(py_object(kept))
    kept.extend(things)


def _before() -> None:
    """Imports what `keep` needs, while the import locks can still be had."""
    if not all(survives(device.info.capabilities) for device in devices):
        try:
            import ctypes  # noqa: F401
        except ImportError:
            return


def _in_child() -> None:
    for device in devices:
        device._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)

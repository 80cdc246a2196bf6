"""The threads that capture a graph, and refusing what no graph can record."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, NoReturn

from hal_core.errors import InvalidState

if TYPE_CHECKING:
    from hal_core.queue.base import Queue

# Thread that captures a graph -> the queue that takes its calls without `queue=`.
captures: dict[int, Queue] = {}


def capturing() -> Queue | None:
    """Return the queue that records the calling thread's work for a graph; mostly None."""
    return captures.get(get_ident())


def check_no_capture(operation: str, why: str) -> None:
    """Refuse what no graph can record while this thread captures one. Raises: InvalidState."""
    taker = capturing()
    if taker is not None:
        refuse_in_capture(operation, why, taker.device.name)


def refuse_in_capture(operation: str, why: str, device: str) -> NoReturn:
    """Raise InvalidState for what cannot be part of a graph."""
    fix = "Leave the `with device.capture()` block first, or do it before."
    raise InvalidState(operation, f"{why} while a graph is captured", device=device, fix=fix)

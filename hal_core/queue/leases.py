"""Leases of memory, and those that a queue has met: its first work on others waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import ref


class Lease:
    """Ownership of one block, shared by a buffer and by all that was exported from it in place.

    The block goes back to the allocator with the last of them, borrowed memory to its owner.
    """

    give_back: Callable[[], None] | None = None  # none for a lease that another thread outran

    def __del__(self) -> None:
        if self.give_back is not None:
            self.give_back()


class KnownMemory(dict[int, "ref[Lease]"]):
    """The leases of memory that a queue has used: each by its id, as long as it lives.

    To look into a WeakSet would take a tenth of a launch.
    """

    def lacks(self, keep: Iterable[Any]) -> bool:
        """Return whether some memory that work keeps is new, or has no lease."""
        for one in keep:  # noqa: SIM110 - any() takes longer
            if one is None or (one.__class__ is Lease and id(one) not in self):
                return True
        return False

    def add(self, keep: Iterable[Any]) -> None:
        """Add memory, once the queue follows earlier work on it: before, Ctrl-C may come."""
        for one in keep:
            if one.__class__ is Lease and id(one) not in self:
                # The dead reference that `pop` is called with is only its default.
                self[id(one)] = ref(one, partial(self.pop, id(one)))

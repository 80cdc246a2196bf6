"""A weak set for several threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class Living(Generic[T]):
    """A weak set that several threads may iterate and add to; a WeakSet would raise."""

    def __init__(self) -> None:
        self._known: set[ref[T]] = set()

    def add(self, one: T) -> None:
        self._known.add(ref(one, self._known.discard))

    def __iter__(self) -> Iterator[T]:
        # A copy of the set is one step under the GIL, so objects may come and go during the loop.
        return iter([one for known in list(self._known) if (one := known()) is not None])

    def clear(self) -> None:
        self._known.clear()

    def __len__(self) -> int:
        return len(self._known)

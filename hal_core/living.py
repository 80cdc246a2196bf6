"""Objects as long as they live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class Living(Generic[T]):
    """What was added and still lives, which is kept by others.

    Concurrency: any thread may add, also while another one iterates; a WeakSet would then raise.
    """

    def __init__(self) -> None:
        self._known: set[ref[T]] = set()

    def add(self, one: T) -> None:
        self._known.add(ref(one, self._known.discard))

    def __iter__(self) -> Iterator[T]:
        """Of what was known at the beginning."""
        return iter([one for known in list(self._known) if (one := known()) is not None])

    def __len__(self) -> int:
        return len(self._known)

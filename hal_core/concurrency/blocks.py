"""`with` blocks written as generators, which may be entered again, also one in another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Block(contextlib.ContextDecorator, contextlib.AbstractContextManager[T], Generic[T]):
    """Runs the generator anew for each `with`; Python's own raises AttributeError at the second."""

    def __init__(self, make: Callable[[], contextlib.AbstractContextManager[T]]) -> None:
        self._make = make
        self._open: list[contextlib.AbstractContextManager[T]] = []

    def __enter__(self) -> T:
        self._open.append(block := self._make())
        try:
            return block.__enter__()
        except BaseException:
            self._open.remove(block)
            raise

    def __exit__(self, *error: Any) -> bool | None:
        return self._open.pop().__exit__(*error)


def block(function: Callable[P, Iterator[T]]) -> Callable[P, Block[T]]:
    """Make a function that returns a `with` block of a generator function, as `contextmanager`."""
    make = contextlib.contextmanager(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Block[T]:
        return Block(partial(make, *args, **kwargs))

    return call

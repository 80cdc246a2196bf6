"""Hold what is known of a value in a gang of threads."""

from __future__ import annotations

from collections.abc import Callable

from hal_core.dtypes import DType

Lanes = tuple[int, ...]  # a number for each thread of a gang
Tests = frozenset[str]  # names of scalars (i1)
NO_TESTS: Tests = frozenset()


class Value:
    """A value of each thread of a gang.

    Where all `tests` hold it is `base`, a scalar, plus a constant for each lane, `lanes`: all zero
    if it is uniform, 0, 1, 2, ... if it is linear; None if no such form is known. `exact` writes
    the vector that holds in any case; `vector` is that vector, if it is written already. `fits`:
    base + lanes does not wrap. Where it may, `lanes` are numbers that the dtype's bits hold: a test
    whether base + lanes wraps compares with what the dtype holds beside them.

    A bool has scalars instead: if `always` is true it is true in all lanes, if `never` is true in
    none; None for no such scalar.

    `is_flat`: all lanes have the base, where the tests hold.
    """

    __slots__ = (
        "always", "base", "dtype", "exact", "fits", "is_flat", "lanes", "never", "tests", "vector",
    )  # fmt: skip

    def __init__(
        self, dtype: DType, base: str = "", lanes: Lanes | None = None, tests: Tests = NO_TESTS,
        exact: Callable[[], str] | None = None, fits: bool = False,
        always: str | None = None, never: str | None = None, vector: str = "",
    ) -> None:  # fmt: skip
        self.is_flat = lanes is not None and not any(lanes)
        if lanes is not None and not (fits or self.is_flat):
            lanes = wrapped(dtype, lanes)
            self.is_flat = not any(lanes)
        self.dtype, self.base, self.lanes, self.tests = dtype, base, lanes, tests
        self.exact, self.fits, self.always, self.never = exact, fits, always, never
        self.vector = vector


def wrapped(dtype: DType, lanes: Lanes) -> Lanes:
    """Return the numbers of the same bits between -2**(n - 1) and 2**(n - 1), for n bits."""
    half = 1 << (8 * dtype.itemsize - 1)
    return tuple([(n + half) % (2 * half) - half for n in lanes])

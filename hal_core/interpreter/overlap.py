"""Arrays that lie on the same memory have one record of who touched it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hal_core.interpreter.races import Race, Shadow

Array = npt.NDArray[Any]


class Record(NamedTuple):
    """One array's part of a record that is kept in units, of which no element has a fraction."""

    shadow: Shadow
    first: int  # the unit that the array begins with
    units: int  # of an element
    beside: tuple[int, ...]  # the other arrays

    def touch(self, how: str, places: Array, threads: Array, epochs: Array) -> Race | None:
        """As of a Shadow, in elements."""
        units = self.units
        each = (places[:, None] * units + np.arange(self.first, self.first + units)).ravel()
        race = self.shadow.touch(how, each, np.repeat(threads, units), np.repeat(epochs, units))
        return race and race._replace(access=race.access // units)


def records(arrays: Mapping[int, Array]) -> dict[int, Record]:
    """Of the contiguous arrays that overlap another. Most do not, and are not in it."""
    found: dict[int, Record] = {}
    spans = sorted(_span(key, array) for key, array in arrays.items() if array.size)
    for group in _groups(spans):
        begin, end = group[0].begin, max(span.end for span in group)
        unit = gcd(*(span.begin - begin for span in group), *(span.itemsize for span in group))
        shadow = Shadow(-(-(end - begin) // unit))
        for span in group:
            beside = tuple(sorted(other.key for other in group if other is not span))
            first, units = (span.begin - begin) // unit, span.itemsize // unit
            found[span.key] = Record(shadow, first, units, beside)
    return found


class _Span(NamedTuple):
    begin: int  # an address
    end: int
    key: int
    itemsize: int


def _span(key: int, array: Array) -> _Span:
    begin = array.__array_interface__["data"][0]
    return _Span(begin, begin + array.nbytes, key, array.itemsize)


def _groups(spans: list[_Span]) -> Iterator[list[_Span]]:
    """Of sorted spans: those that overlap, or that a chain of overlaps joins."""
    group: list[_Span] = []
    reached = 0
    for span in spans:
        if span.begin >= reached:
            if len(group) > 1:
                yield group
            group = []
        group.append(span)
        reached = max(reached, span.end)
    if len(group) > 1:
        yield group

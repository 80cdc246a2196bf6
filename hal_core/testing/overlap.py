"""Arrays that lie on the same memory have one record of who touched it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hal_core.testing.races import Race, Shadow

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
    for group in _groups(arrays):
        begin, end = _bytes(arrays[group[0]])[0], max(_bytes(arrays[key])[1] for key in group)
        starts = {key: _bytes(arrays[key])[0] - begin for key in group}
        unit = gcd(*starts.values(), *(arrays[key].itemsize for key in group))
        shadow = Shadow(-(-(end - begin) // unit))
        for key in group:
            beside = tuple(sorted(other for other in group if other != key))
            units = arrays[key].itemsize // unit
            found[key] = Record(shadow, starts[key] // unit, units, beside)
    return found


def _groups(arrays: Mapping[int, Array]) -> Iterator[list[int]]:
    """Those that overlap, or that a chain of overlaps joins; the first begins first."""
    group: list[int] = []
    reached = 0
    for key in sorted((key for key in arrays if arrays[key].size), key=lambda k: _bytes(arrays[k])):
        begin, end = _bytes(arrays[key])
        if begin >= reached:
            if len(group) > 1:
                yield group
            group = []
        group.append(key)
        reached = max(reached, end)
    if len(group) > 1:
        yield group


def _bytes(array: Array) -> tuple[int, int]:
    begin: int = array.__array_interface__["data"][0]
    return begin, begin + array.nbytes

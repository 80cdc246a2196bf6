"""Give arrays that overlap one common shadow, so that races between them are found.

A common shadow counts in units: the largest size that divides every element size and offset.

    a: int32 at byte 0, 4 elements       a[3] is units 6, 7
    b: int16 at byte 12, 3 elements      b[0] is unit 6, b[1] unit 7: both race with a[3]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hal_kernel.interpreter.races import Race, Shadow

Array = npt.NDArray[Any]


class ShadowPart(NamedTuple):
    """The part of a common shadow that belongs to one array, or to a view of it."""

    shadow: Shadow
    first: int  # the unit that the array begins with
    units: int  # per element
    others: tuple[int, ...]  # keys of the other arrays with this shadow

    def touch(
        self, how: str, places: Array, threads: Array, epochs: Array, knows: Array | None = None
    ) -> Race | None:
        """Record accesses to elements, as `Shadow.touch` does."""
        units = self.units
        knows = None if knows is None else np.repeat(knows, units)
        each = (places[:, None] * units + np.arange(self.first, self.first + units)).ravel()
        race = self.shadow.touch(
            how, each, np.repeat(threads, units), np.repeat(epochs, units), knows
        )
        return race and race._replace(access=race.access // units)


def shared_shadows(
    arrays: Mapping[int, Array], narrowest: Mapping[int, int]
) -> dict[int, ShadowPart]:
    """Return the shadow parts of the contiguous arrays that overlap another one, or have views.

    `narrowest` has the size of the smallest element of the views of an array.
    """
    found: dict[int, ShadowPart] = {}
    spans = []
    for key, array in arrays.items():
        if array.size:
            begin = array.__array_interface__["data"][0]
            spans.append(_Span(begin, begin + array.nbytes, key, array.itemsize))
    for group in _groups(sorted(spans)):
        if len(group) == 1 and group[0].key not in narrowest:
            continue
        begin, end = group[0].begin, max(span.end for span in group)
        seen = (narrowest.get(span.key, span.itemsize) for span in group)
        sizes = (span.itemsize for span in group)
        unit = gcd(*(span.begin - begin for span in group), *sizes, *seen)
        shadow = Shadow(-(-(end - begin) // unit))
        for span in group:
            others = tuple(sorted(other.key for other in group if other is not span))
            first, units = (span.begin - begin) // unit, span.itemsize // unit
            found[span.key] = ShadowPart(shadow, first, units, others)
    return found


class _Span(NamedTuple):
    """The address range of an array."""

    begin: int  # an address
    end: int
    key: int
    itemsize: int


def _groups(spans: list[_Span]) -> Iterator[list[_Span]]:
    """Yield the groups of sorted spans that overlap, directly or through others of the group."""
    group: list[_Span] = []
    reached = 0
    for span in spans:
        if group and span.begin >= reached:
            yield group
            group = []
        group.append(span)
        reached = max(reached, span.end)
    if group:
        yield group

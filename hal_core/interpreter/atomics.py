"""Atomics: one thread after the other reads an element, combines, and writes it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hal_core.interpreter.operations import OPERATIONS

Array = npt.NDArray[Any]


def _compare_exchange(old: Array, expected: Array, desired: Array) -> Array:
    return np.where(old == expected, desired, old)


# The new value, from the old one and what is given.
_KINDS: dict[str, Callable[..., Array]] = {
    "ADD": OPERATIONS["ADD"],
    "MIN": OPERATIONS["MIN"],
    "MAX": OPERATIONS["MAX"],
    "AND": OPERATIONS["AND"],
    "OR": OPERATIONS["OR"],
    "XOR": OPERATIONS["XOR"],
    "EXCHANGE": lambda old, value: value,
    "CAS": _compare_exchange,
}


def exchange_each(kind: str, elements: Array, places: Array, *given: Array) -> Array:
    """Changes `elements[places]` in the order of the threads; gives each its old value."""
    combine = _KINDS[kind]
    if len(np.unique(places)) == len(places):
        old = elements[places]
        elements[places] = combine(old, *given)
        return old
    old = np.empty(len(places), elements.dtype)
    for number, place in enumerate(places):
        one = slice(place, place + 1)
        old[number] = elements[place]
        elements[one] = combine(elements[one], *(value[number : number + 1] for value in given))
    return old

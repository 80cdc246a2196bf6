"""Execute atomics: one thread after the other reads an element, changes it and writes it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hal_kernel.interpreter.operations import OPERATIONS, choose

Array = npt.NDArray[Any]

# kind -> function that returns the new value, given the old one and the operands
_KINDS: dict[str, Callable[..., Array]] = {
    **{kind: OPERATIONS[kind] for kind in ("ADD", "MIN", "MAX", "AND", "OR", "XOR")},
    "EXCHANGE": lambda old, value: value,
    "CAS": lambda old, expected, desired: choose(old == expected, desired, old),
}


def exchange_each(kind: str, elements: Array, places: Array, *operands: Array) -> Array:
    """Change `elements[places]` in the order of the threads; return each thread's old value."""
    combine = _KINDS[kind]
    if len(np.unique(places)) == len(places):  # at once: each thread has its own element
        old = elements[places]
        elements[places] = combine(old, *operands)
        return old
    old = np.empty(len(places), elements.dtype)
    for number, place in enumerate(places):
        one = slice(place, place + 1)
        old[number] = elements[place]
        elements[one] = combine(elements[one], *(value[number : number + 1] for value in operands))
    return old

"""The words of a language that the names of a kernel and its variables must keep away from."""

from __future__ import annotations

import itertools
import re

from hal_core.ir.reserved import C_KEYWORDS, LIBRARY_NAMES
from hal_core.render.c.language import Language

AXES = "xyz"


def reserved(row: Language) -> frozenset[str]:
    """The identifiers that no parameter or variable of a text may have."""
    templates = " ".join((
        *row.functions.values(), *row.specials.values(), *itertools.chain(*row.bits.values()),
        *itertools.chain(*row.infinities.values()), *row.last_parameters,
        row.frame, row.threads, row.barrier,
    )).replace("{f}", "")  # fmt: skip
    # not what stands behind a dot: a member's name hides nothing
    words = {w for axis in AXES for w in re.findall(r"(?<![.$\w])[$\w]+", filled(templates, axis))}
    return C_KEYWORDS | LIBRARY_NAMES | row.keywords | frozenset(row.types.values()) | words


def called(row: Language) -> frozenset[str]:
    """The functions of the language that its texts call: a kernel of the name would be another."""
    pairs = itertools.chain(*row.bits.values(), *row.infinities.values())
    templates = itertools.chain(
        row.functions.values(), row.specials.values(), (f"{name}(" for name in pairs),
        row.casts.values(), *(space.atomics.values() for space in row.spaces.values()),
        [row.barrier],
    )  # fmt: skip
    return frozenset(re.findall(r"(\w+)(?:<\w+>)?\(", " ".join(templates)))


def filled(template: str, axis: str) -> str:
    return template.replace("{axis}", axis).replace("{dim}", str(AXES.index(axis)))

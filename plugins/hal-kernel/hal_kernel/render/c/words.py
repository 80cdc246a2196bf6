"""Find the words of a language that a kernel or its variables may not have as names."""

from __future__ import annotations

import itertools
import re

from hal_kernel.ir.reserved import C_KEYWORDS, LIBRARY_NAMES
from hal_kernel.render.c.language import Language

AXES = "xyz"


def reserved(row: Language) -> frozenset[str]:
    """Return the identifiers that no parameter or variable of a text may have."""
    templates = " ".join((
        *row.functions.values(), *row.specials.values(), *itertools.chain(*row.bits.values()),
        *itertools.chain(*row.infinities.values()), *row.last_parameters, *row.subgroup_parameters,
        row.frame, row.rows, row.threads, row.barrier, row.fence, *row.shuffle, row.ballot,
    )).replace("{f}", "").replace("{type}", "")  # fmt: skip
    # A word after a dot is a member, which a variable of the same name does not hide.
    words = {w for axis in AXES for w in re.findall(r"(?<![.$\w])[$\w]+", filled(templates, axis))}
    return C_KEYWORDS | LIBRARY_NAMES | row.keywords | frozenset(row.types.values()) | words


def called(row: Language) -> frozenset[str]:
    """Return the functions that rendered texts call: a kernel of that name would hide one."""
    pairs = itertools.chain(*row.bits.values(), *row.infinities.values())
    templates = itertools.chain(
        row.functions.values(), row.specials.values(), (f"{name}(" for name in pairs),
        row.casts.values(), *(space.atomics.values() for space in row.spaces.values()),
        [row.barrier, row.fence, *row.shuffle, row.ballot],
    )  # fmt: skip
    return frozenset(re.findall(r"(\w+)(?:<\w+>)?\(", " ".join(templates)))


def filled(template: str, axis: str) -> str:
    """Return a template of a `Language` with its axis filled in."""
    return template.replace("{axis}", axis).replace("{dim}", str(AXES.index(axis)))

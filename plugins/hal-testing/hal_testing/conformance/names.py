"""Names that the base classes of backends keep for themselves."""

from __future__ import annotations

import dis
from itertools import pairwise
from typing import Any

BASES = (
    "hal_core.device.base", "hal_core.allocator", "hal_core.allocator.accounts", "hal_core.program",
    "hal_core.compiler",
)  # fmt: skip


def taken_from_base(part: object) -> list[str]:
    """Return the private attributes of a part's base classes that its own classes assign too.

    Either class would read what the other has left there. Methods are not compared: a backend
    overrides them on purpose, or mypy tells.
    """
    classes = type(part).__mro__
    base = [kind for kind in classes if kind.__module__ in BASES]
    own = [kind for kind in classes if kind.__module__ not in BASES and issubclass(kind, base[-1])]
    attributes = set().union(*map(_assigned, base))
    known = attributes.union(*map(vars, base))
    found = {f"{kind.__name__}.{name}" for kind in own for name in _assigned(kind) & known}
    found |= {f"{kind.__name__}.{name}" for kind in own for name in vars(kind).keys() & attributes}
    return sorted(found)


def _assigned(kind: type) -> set[str]:
    """Return the private names that the methods of a class assign, `self._name = ...`."""
    found = set()
    for method in vars(kind).values():
        code: Any = getattr(method, "__code__", None)
        if code is None or not code.co_argcount:
            continue
        me = code.co_varnames[0]
        for before, step in pairwise(dis.get_instructions(code)):
            # From Python 3.13 on one instruction may load two names, the object last.
            loaded = before.argval if isinstance(before.argval, tuple) else (before.argval,)
            if step.opname == "STORE_ATTR" and loaded[-1] == me and step.argval[0] == "_":
                found.add(step.argval)
    return found

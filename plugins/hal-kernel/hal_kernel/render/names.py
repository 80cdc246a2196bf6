"""Choose identifiers for rendered text; a name that is taken is replaced by a similar one."""

from __future__ import annotations

import re
from collections.abc import Set

from hal_kernel.ir.reserved import MACROS

_MACRO = re.compile(MACROS)


class Names:
    """The identifiers of one rendered text; each is given out once."""

    def __init__(self, reserved: Set[str]) -> None:
        self._reserved = reserved
        self._taken: set[str] = set()
        self._count = 0
        self._last: dict[str, int] = {}  # name that is taken -> the last number appended to it

    def take(self, wanted: str) -> str:
        """Return `wanted`, with `_`, `_2`, ... appended if the language or the text has it already.

        Letters beyond ASCII are written as their number.
        """
        if not wanted.isascii():
            wanted = "".join(c if c.isascii() else f"u{ord(c):x}" for c in wanted)
        base = name = f"{wanted}_" if _MACRO.match(wanted) else wanted
        while name in self._taken or name in self._reserved:
            number = self._last[base] = self._last.get(base, 0) + 1
            name = f"{base}_{number}" if number > 1 else f"{base}_"
        self._taken.add(name)
        return name

    def fresh(self) -> str:
        """Return a name for a value to which the user gave none: v0, v1, ..."""
        while (name := f"v{self._count}") in self._taken or name in self._reserved:
            self._count += 1
        self._taken.add(name)
        return name

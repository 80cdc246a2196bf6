"""Which variables a stretch of code needs from before it, and which it gives on."""

from __future__ import annotations

from collections.abc import Sequence

from hal_core.ir.uop import UOp

Variables = frozenset[UOp]


class Assigned:
    """`exposed`: read on some path before it is set here. `written`: set on some path.

    `uncertain`: set on some paths to the end, but not on all. `used`: all that occur.
    """

    def __init__(self, uops: Sequence[UOp]) -> None:
        self.exposed: dict[UOp, None] = {}
        self.written: dict[UOp, None] = {}
        self.used: dict[UOp, None] = {}
        self._now: Variables | None = frozenset()  # None: no path leads here
        self._before: list[Variables | None] = []
        self._aside: dict[UOp, Variables | None] = {}  # at the end of a THEN, at a loop's BREAKs
        for node in uops:
            self._step(node)
        known = self._now
        self.uncertain = [] if known is None else [v for v in self.written if v not in known]

    def _step(self, node: UOp) -> None:
        op = node.op
        if op in ("SET", "GET"):
            self._access(op, node.src[0])
        elif op in ("IF", "RANGE", "LOOP"):
            self._before.append(self._now)
        elif op == "ELSE":
            self._aside[node.src[0]] = self._now
            self._now = self._before[-1]
        elif op == "ENDIF":
            self._now = _both(self._aside.pop(node.src[0], self._before[-1]), self._now)
            self._before.pop()
        elif op == "ENDRANGE":  # may run no time
            self._now = self._before.pop()
        elif op == "ENDLOOP":
            self._before.pop()
            self._now = self._aside.pop(node.src[0], None)
        elif op in ("BREAK", "CONTINUE", "RETURN"):
            if op == "BREAK":
                loop = node.src[0]
                known = self._aside.get(loop)
                self._aside[loop] = (
                    self._now if loop not in self._aside else _both(known, self._now)
                )
            self._now = None

    def _access(self, op: str, variable: UOp) -> None:
        self.used[variable] = None
        if op == "SET":
            self.written[variable] = None
            if self._now is not None:
                self._now |= {variable}
        elif self._now is not None and variable not in self._now:
            self.exposed[variable] = None


def _both(first: Variables | None, second: Variables | None) -> Variables | None:
    """Where two paths meet; one that does not get there does not count."""
    if first is None or second is None:
        return first if second is None else second
    return first & second

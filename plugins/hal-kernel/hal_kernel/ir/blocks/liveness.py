"""Find the variables that a list of nodes reads from outside, and those that it sets.

if c:           exposed    a, b     read on some path before they are set here
    a = b       written    a        set on some path
y[i] = a        uncertain  a        written, but not on every path to the end
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_kernel.ir.uop import UOp

Variables = frozenset[UOp]


class Liveness:
    """The sets above, as VARs in order; `used` has every VAR that is read or set."""

    def __init__(self, uops: Sequence[UOp]) -> None:
        self.exposed: dict[UOp, None] = {}
        self.written: dict[UOp, None] = {}
        self.used: dict[UOp, None] = {}
        # The VARs set on every path to the current node; None: no path leads to it.
        self._set_here: Variables | None = frozenset()
        self._at_start: list[Variables | None] = []  # `_set_here` where each open block began
        # `_set_here` at the end of an IF's first side, and where all BREAKs of a loop meet.
        self._at_exit: dict[UOp, Variables | None] = {}
        for node in uops:
            op = node.op
            if op == "SET":
                self.used[node.src[0]] = self.written[node.src[0]] = None
                if self._set_here is not None:
                    self._set_here |= {node.src[0]}
            elif op == "GET":
                self.used[node.src[0]] = None
                if self._set_here is not None and node.src[0] not in self._set_here:
                    self.exposed[node.src[0]] = None
            elif op in ("IF", "RANGE", "LOOP"):
                self._at_start.append(self._set_here)
            elif op == "ELSE":
                self._at_exit[node.src[0]] = self._set_here
                self._set_here = self._at_start[-1]
            elif op == "ENDIF":
                start = self._at_start.pop()
                self._set_here = _meet(self._at_exit.pop(node.src[0], start), self._set_here)
            elif op == "ENDRANGE":
                self._set_here = self._at_start.pop()  # the loop may run no iteration
            elif op == "ENDLOOP":
                self._at_start.pop()
                self._set_here = self._at_exit.pop(node.src[0], None)
            elif op in ("BREAK", "CONTINUE", "RETURN"):
                if op == "BREAK":
                    loop = node.src[0]
                    self._at_exit[loop] = _meet(self._at_exit.get(loop), self._set_here)
                self._set_here = None
        known = self._set_here
        self.uncertain = [] if known is None else [v for v in self.written if v not in known]


def _meet(first: Variables | None, second: Variables | None) -> Variables | None:
    """Return the VARs set on both paths that meet; None is a path that ends before."""
    if first is None or second is None:
        return first if second is None else second
    return first & second

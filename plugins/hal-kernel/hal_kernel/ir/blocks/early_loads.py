"""Load an element ahead of an IF that stores it on both sides.

    if x[i] > 0:                  old = y[i]
        y[i] = y[i] + x[i]        if x[i] > 0:
    else:                  ->         y[i] = old + x[i]
        y[i] = 0                  else:
                                      y[i] = 0

The element exists, because the thread stores it in any case. On the right, compilers make one store
of the two, and vectors of the threads need no masks.
"""

from __future__ import annotations

from typing import NamedTuple

from hal_kernel.ir.uop import ATOMIC_OPS, LEAVES, PURE, UOp

_COMPUTED = PURE | {"CONST", "SPECIAL"}
_ENDS = {"ENDIF", "ENDRANGE", "ENDLOOP"}
# Behind these a thread may store nothing more, or read what another one has written meanwhile.
_HIDES = LEAVES | ATOMIC_OPS | {"LOOP", "FENCE", "BARRIER", "ASSERT"}

Element = tuple[UOp, UOp]  # memory, index


class _Side:
    """The stores and loads of a side of an IF, or of the body of a loop, up to a node."""

    def __init__(self) -> None:
        self.stored: set[Element] = set()  # by each thread that begins
        self.loads: list[UOp] = []  # ahead of all stores
        self.hidden = self.written = False


class _Block(NamedTuple):
    """An IF or a loop that is open."""

    place: int  # among the nodes that were made
    sides: list[_Side]


def with_early_loads(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel with such loads moved, and what computes their indices."""
    if not _may_store_on_both_sides(uops):
        return uops
    moving = _Moving(uops)
    for node in uops:
        moving.add(node)
    return tuple(moving.made)


def _may_store_on_both_sides(uops: tuple[UOp, ...]) -> bool:
    """Tell whether a STORE stands behind an ELSE: few kernels with an ELSE have one there."""
    stores = 0
    ahead: dict[UOp, int] = {}  # IF -> the STOREs ahead of its ELSE
    for node in uops:
        op = node.op
        if op == "STORE":
            stores += 1
        elif op == "ELSE":
            ahead[node.src[0]] = stores
        elif op == "ENDIF" and ahead.get(node.src[0], stores) < stores:
            return True
    return False


class _Moving:
    """The nodes up to one of them, with loads moved."""

    def __init__(self, uops: tuple[UOp, ...]) -> None:
        self.order = {node: n for n, node in enumerate(uops)}
        self.made: list[UOp] = []
        self.blocks = [_Block(0, [_Side()])]
        self.equal: dict[UOp, UOp] = {}  # node -> the first that computes the same
        self.first: dict[tuple[object, ...], UOp] = {}  # what a node computes -> the first such

    def add(self, node: UOp) -> None:
        """Append a node; at the end of an IF, move its loads."""
        if node.op == "ELSE":
            self.blocks[-1].sides.append(_Side())
        elif node.op in _ENDS:
            self._close()
        else:
            self._note(node, self.blocks[-1].sides[-1])
        if node.op in ("IF", "RANGE", "LOOP"):
            self.blocks.append(_Block(len(self.made), [_Side()]))
        self.made.append(node)

    def _note(self, node: UOp, side: _Side) -> None:
        if node.op in _COMPUTED:
            sources = [self.equal.get(source, source) for source in node.src]
            # In Python -0.0 == 0.0, but an index may differ by the sign.
            arg = repr(node.arg) if node.op == "CONST" else node.arg
            self.equal[node] = self.first.setdefault((node.op, node.dtype, arg, *sources), node)
        elif node.op in _HIDES:
            side.hidden = True
        elif node.op == "LOAD" and len(node.src) == 2 and node.arg is None:
            if not side.hidden and not side.written:
                side.loads.append(node)
        elif node.op == "STORE":
            side.written = True
            if not side.hidden and node.arg is None:
                side.stored.add(self._element(node))

    def _element(self, node: UOp) -> Element:
        return node.src[0], self.equal.get(node.src[1], node.src[1])

    def _close(self) -> None:
        """Move the loads of the innermost block, and note what it does for the one around it."""
        place, sides = self.blocks.pop()
        around = self.blocks[-1].sides[-1]
        if len(sides) == 2:
            both = sides[0].stored & sides[1].stored
            early: dict[UOp, None] = {}
            for load in (load for side in sides for load in side.loads):
                needed = self._needed(load, self.made[place])
                if self._element(load) in both and needed is not None:
                    early |= dict.fromkeys(needed)
                    self._note(load, around)
            if early:
                late = [node for node in self.made[place:] if node not in early]
                self.made[place:] = [*sorted(early, key=self.order.__getitem__), *late]
            if not around.hidden:
                around.stored |= both
        around.hidden |= any(side.hidden for side in sides)
        around.written |= any(side.written for side in sides)

    def _needed(self, load: UOp, block: UOp) -> list[UOp] | None:
        """Return a load, and the nodes in its block that compute its index; None if others do."""
        needed, pending = [load], [load.src[1]]
        while pending:
            node = pending.pop()
            if self.order[node] > self.order[block]:
                if node.op not in _COMPUTED:
                    return None
                needed.append(node)
                pending += node.src
        return needed

"""Move what a thread stores when it leaves a loop behind the loop.

    for k in range(n):              exit = 0
        if x[k] == v:               for k in range(n):
            y[i] = k                    if x[k] == v:
            return                          exit, left = 1, k
    y[i] = -1               ->              break
                                    if exit == 1:
                                        y[i] = left
                                        return
                                    y[i] = -1

The loop on the right only computes and loads, so its threads can run in lockstep: `leaving.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hal_core.dtypes import DType, bool_, int32
from hal_kernel.ir.uop import PURE, UOp

_MOST = 4  # ways out of a loop
_TAIL = PURE | {"CONST", "SPECIAL", "GET", "SET", "LOAD", "STORE"}
_DEPTH = {"RANGE": 1, "LOOP": 1, "ENDRANGE": -1, "ENDLOOP": -1}


def without_exits(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel in which innermost loops store and return only behind them."""
    ops = {node.op for node in uops}
    if ops.isdisjoint(("BREAK", "RETURN")):
        return uops
    leaves = {"RETURN"} if "BARRIER" not in ops else set()
    found = False
    made: list[UOp] = []
    start, depth = 0, 0  # the last loop that was opened, in `made`; loops around the node
    for node in uops:
        depth += _DEPTH.get(node.op, 0)
        if node.op in ("RANGE", "LOOP"):
            start = len(made)
        made.append(node)
        if node.op in ("ENDRANGE", "ENDLOOP") and made[start] is node.src[0]:
            exits = exits_of(made[start], made[start + 1 : -1], leaves if not depth else ())
            if exits:
                made[start:] = _Moved(made[start:], exits).uops
                found = True
    return tuple(made) if found else uops


def exits_of(loop: UOp, body: Sequence[UOp], leaves: Collection[str]) -> dict[UOp, list[UOp]]:
    """Return the nodes that leave a loop behind stores, or the kernel, each with its stores.

    Each list begins with a store. There are none if anything else in the loop stores or returns.
    """
    exits: dict[UOp, list[UOp]] = {}
    tail: list[UOp] = []
    left = sum(node.op in ("STORE", "RETURN") for node in body)
    if not left:
        return {}
    for node in body:
        if node.op in leaves or (tail and node.op == "BREAK" and node.src[0] is loop):
            exits[node] = tail
            left -= sum(part.op == "STORE" for part in tail) + (node.op == "RETURN")
        if node.op not in _TAIL:
            tail = []
        elif tail or node.op == "STORE":
            tail = [*tail, node]
    return {} if left or len(exits) > _MOST else exits


class _Moved:
    """A loop, from its first node to its last, with what its exits do behind it."""

    def __init__(self, nodes: Sequence[UOp], exits: Mapping[UOp, list[UOp]]) -> None:
        self.line, self.inside = nodes[0].line, set(nodes)
        self.fixed: set[UOp] = set()  # what is the same behind the loop
        for node in nodes:
            if node.op in ("CONST", "SPECIAL") or (
                node.op in PURE and self.fixed.issuperset(self.inside.intersection(node.src))
            ):
                self.fixed.add(node)
        self.ahead: list[UOp] = []
        self.within: list[UOp] = []
        self.behind: list[UOp] = []
        self.exit = self._add(self.ahead, "VAR", int32, arg="exit")
        zero = self._add(self.ahead, "CONST", int32, arg=0)
        self._add(self.ahead, "SET", None, self.exit, zero)
        self.moved = {node for tail in exits.values() for node in tail}
        for node in nodes:
            if node in exits:
                number = self._add(self.within, "CONST", int32, arg=1 + [*exits].index(node))
                self._add(self.within, "SET", None, self.exit, number)
                self._move(node, exits[node], number)
                self._add(self.within, "BREAK", None, nodes[0])
            elif node not in self.moved:
                self.within.append(node)
        self.uops = [*self.ahead, *self.within, *self.behind]

    def _add(
        self, where: list[UOp], op: str, dtype: DType | None = None, *src: UOp, arg: object = None
    ) -> UOp:
        where.append(UOp(op, dtype, src, arg, self.line))
        return where[-1]

    def _move(self, leave: UOp, tail: list[UOp], number: UOp) -> None:
        """Write what is behind the loop for the threads that left it by this exit."""
        taken = self._add(self.behind, "GET", int32, self.exit)
        block = self._add(
            self.behind, "IF", None, self._add(self.behind, "EQ", bool_, taken, number)
        )
        new: dict[UOp, UOp] = {}
        for node in tail:
            self._here(node, new)
        if leave.op == "RETURN":
            self._add(self.behind, "RETURN")
        self._add(self.behind, "ENDIF", None, block)

    def _here(self, node: UOp, new: dict[UOp, UOp]) -> UOp:
        """Return the node that gives the value behind the loop."""
        if node not in self.inside or node.op == "VAR":
            return node
        if node not in new and (node in self.moved or node in self.fixed):
            sources = tuple([self._here(source, new) for source in node.src])
            new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
            self.behind.append(new[node])
        elif node not in new:
            saved = self._add(self.ahead, "VAR", node.dtype, arg="left")
            self._add(self.within, "SET", None, saved, node)
            new[node] = self._add(self.behind, "GET", node.dtype, saved)
        return new[node]

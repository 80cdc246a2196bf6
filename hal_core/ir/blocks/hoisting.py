"""Find the nodes that run once per block, outside of the loops over its threads.

    for k in range(n):              for k in range(n):
        s[t] = x[k]                     for t in threads: s[t] = x[k]
        hal.barrier()         ->
        y[t] += s[0]                    for t in threads: y[t] += s[0]

A loop over threads cannot contain a barrier, so the control flow around a barrier is hoisted out of
it. To run it once per block is enough, because `verify` has made sure that all threads agree on it.
Each IF and loop that contains a barrier is hoisted, with the nodes that leave it and the values
that it depends on.
"""

from __future__ import annotations

from collections.abc import Iterable

from hal_core.ir.uop import BINARY, CLOSES, COMPARISON, UNARY, UOp

PURE = UNARY | BINARY | COMPARISON | {"CAST", "BITCAST", "WHERE", "FMA"}
_MOVABLE = PURE | {"GET", "SET", "VAR"}
_OWN = frozenset({"thread_idx", "global_idx"})  # SPECIALs that differ between threads


def is_common(node: UOp) -> bool:
    """Tell whether a node is the same for the whole block, and computed from nothing."""
    if node.op == "SPECIAL":
        return node.arg[0] not in _OWN
    return node.op in ("PARAM", "SHARED", "TABLE", "VIEW", "CONST")


class Hoisted:
    """The ids of nodes that run once per block."""

    def __init__(self, uops: tuple[UOp, ...]) -> None:
        self.uops = uops
        self.ids = {id(node) for node in uops if is_common(node)}
        self.around: dict[int, UOp | None] = {}  # node -> the innermost RANGE, LOOP or IF around it
        self._closers: dict[int, list[UOp]] = {}  # with the BREAKs and CONTINUEs of a loop
        self._sets: dict[int, list[UOp]] = {}
        self._users: dict[int, list[UOp]] = {}
        open_: list[UOp] = []
        for node in uops:
            if node.op in ("ENDRANGE", "ENDLOOP", "ENDIF"):
                open_.pop()
            self.around[id(node)] = open_[-1] if open_ else None
            if node.op in CLOSES or node.op in ("BREAK", "CONTINUE"):
                self._closers.setdefault(id(node.src[0]), []).append(node)
            if node.op == "SET":
                self._sets.setdefault(id(node.src[0]), []).append(node)
            for source in node.src:
                self._users.setdefault(id(source), []).append(node)
            if node.op in ("RANGE", "LOOP", "IF"):
                open_.append(node)
        barriers = [node for node in uops if node.op == "BARRIER"]
        self.add([*barriers, *self._block_returns(barriers)])

    def __contains__(self, node: UOp) -> bool:
        return id(node) in self.ids

    def _block_returns(self, barriers: list[UOp]) -> list[UOp]:
        """Return the RETURNs that a barrier may follow, in this iteration of a loop or a later one.

        All threads run such a RETURN together, and it ends the block.
        """
        around_barriers = {id(block) for node in barriers for block in self._enclosing(node)}
        found, left = [], len(barriers)
        for node in self.uops:
            left -= node.op == "BARRIER"
            if node.op == "RETURN":
                blocks = self._enclosing(node)
                # In a loop that holds a barrier, the next iteration meets the barrier again.
                again = (block.op != "IF" and id(block) in around_barriers for block in blocks)
                if left or any(again):
                    found.append(node)
        return found

    def _enclosing(self, node: UOp) -> list[UOp]:
        blocks, block = [], self.around[id(node)]
        while block is not None:
            blocks.append(block)
            block = self.around[id(block)]
        return blocks

    def add(self, nodes: Iterable[UOp]) -> None:
        """Hoist the nodes, the IFs and loops around them, and everything that these depend on."""
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if node in self:
                continue
            self.ids.add(id(node))
            block = self.around[id(node)]
            pending += node.src if block is None else (block, *node.src)
            pending += self._closers.get(id(node), ())
            # A hoisted variable has one value per block, so every SET of it runs once per block.
            if node.op == "VAR":
                pending += self._sets.get(id(node), ())

    def all_threads_reach(self, node: UOp) -> bool:
        """Tell whether every IF and loop around the node is hoisted."""
        block = self.around[id(node)]
        return block is None or block in self

    def per_thread(self) -> set[int]:
        """Return the ids of nodes that have to run for each thread.

        The values of these nodes may differ between threads, or would change if memory was read at
        another time. All other nodes could be hoisted too.
        """
        pending = [
            node
            for node in self.uops
            if node not in self and (node.op not in _MOVABLE or not self.all_threads_reach(node))
        ]
        found: set[int] = set()
        while pending:
            node = pending.pop()
            if id(node) in found or node in self:
                continue
            found.add(id(node))
            pending += self._users.get(id(node), ())
            if node.op == "SET":
                pending.append(node.src[0])
        return found

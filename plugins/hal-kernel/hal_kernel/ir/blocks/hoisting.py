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

from hal_kernel.ir.uop import CLOSES, PURE, UOp

_MOVABLE = PURE | {"GET", "SET", "VAR"}
_CLOSERS = CLOSES | {"BREAK", "CONTINUE"}
# SPECIALs that differ between threads.
_OWN = frozenset({"thread_idx", "global_idx", "subgroup_idx", "subgroup_lane", "subgroup_threads"})


def is_common(node: UOp) -> bool:
    """Tell whether a node is the same for the whole block, and computed from nothing."""
    if node.op == "SPECIAL":
        return node.arg[0] not in _OWN
    return node.op in ("PARAM", "SHARED", "TABLE", "VIEW", "CONST")


class Hoisted:
    """The nodes that run once per block."""

    def __init__(self, uops: tuple[UOp, ...]) -> None:
        self.uops = uops
        self.nodes = {node for node in uops if is_common(node)}
        self.around: dict[UOp, UOp | None] = {}  # node -> the innermost RANGE, LOOP or IF around it
        self._closers: dict[UOp, list[UOp]] = {}  # with the BREAKs and CONTINUEs of a loop
        self._sets: dict[UOp, list[UOp]] = {}
        block: UOp | None = None
        for node in uops:
            op = node.op
            if op in _CLOSERS:
                self._closers.setdefault(node.src[0], []).append(node)
                if op in ("ENDRANGE", "ENDLOOP", "ENDIF"):
                    block = self.around[node.src[0]]
            elif op == "SET":
                self._sets.setdefault(node.src[0], []).append(node)
            self.around[node] = block
            if op in ("RANGE", "LOOP", "IF"):
                block = node
        barriers = [node for node in uops if node.op == "BARRIER"]
        self.add([*barriers, *self._block_returns(barriers)])

    def __contains__(self, node: UOp) -> bool:
        return node in self.nodes

    def _block_returns(self, barriers: list[UOp]) -> list[UOp]:
        """Return the RETURNs that a barrier may follow, in this iteration of a loop or a later one.

        All threads run such a RETURN together, and it ends the block.
        """
        around_barriers = {block for node in barriers for block in self._enclosing(node)}
        found, left = [], len(barriers)
        for node in self.uops:
            left -= node.op == "BARRIER"
            if node.op == "RETURN":
                blocks = self._enclosing(node)
                # In a loop that holds a barrier, the next iteration meets the barrier again.
                again = (block.op != "IF" and block in around_barriers for block in blocks)
                if left or any(again):
                    found.append(node)
        return found

    def _enclosing(self, node: UOp) -> list[UOp]:
        blocks, block = [], self.around[node]
        while block is not None:
            blocks.append(block)
            block = self.around[block]
        return blocks

    def add(self, nodes: Iterable[UOp]) -> None:
        """Hoist the nodes, the IFs and loops around them, and everything that these depend on."""
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if node in self.nodes:
                continue
            self.nodes.add(node)
            block = self.around[node]
            pending += node.src if block is None else (block, *node.src)
            pending += self._closers.get(node, ())
            # A hoisted variable has one value per block, so every SET of it runs once per block.
            if node.op == "VAR":
                pending += self._sets.get(node, ())

    def all_threads_reach(self, node: UOp) -> bool:
        """Tell whether every IF and loop around the node is hoisted."""
        block = self.around[node]
        return block is None or block in self.nodes

    def per_thread(self) -> set[UOp]:
        """Return the nodes that have to run for each thread.

        The values of these nodes may differ between threads, or would change if memory was read at
        another time. All other nodes could be hoisted too.
        """
        found: set[UOp] = set()
        left, count = [node for node in self.uops if node not in self.nodes], 0
        while len(left) != count:  # again, because a loop's next iteration gets what is set in it
            count, others = len(left), []
            for node in left:
                movable = node.op in _MOVABLE and self.all_threads_reach(node)
                if movable and found.isdisjoint(node.src):
                    others.append(node)
                    continue
                found.add(node)
                if node.op == "SET":
                    found.add(node.src[0])
            left = others
        return found

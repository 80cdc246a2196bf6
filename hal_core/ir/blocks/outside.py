"""What of a kernel with barriers runs once for a block of threads, where threads are loops.

Control flow around a barrier cannot stand inside the loops over the threads. Uniformity (verify
has made sure of it) says that all threads of a block agree on it, so that once is enough: the
blocks that hold a barrier, what leaves them, and the values they depend on are *outside*.
"""

from __future__ import annotations

from collections.abc import Iterable

from hal_core.ir.uop import BINARY, CLOSES, COMPARISON, UNARY, UOp

PURE = UNARY | BINARY | COMPARISON | {"CAST", "BITCAST", "WHERE", "FMA"}
_MOVABLE = PURE | {"GET", "SET", "VAR"}
_OWN = frozenset({"thread_idx", "global_idx"})


def is_common(node: UOp) -> bool:
    """Whether it is the same everywhere in a block, and needs nothing: it can stand in front."""
    if node.op == "SPECIAL":
        return node.arg[0] not in _OWN
    return node.op in ("PARAM", "SHARED", "CONST")


class Outside:
    """The ids of nodes that run once a block."""

    def __init__(self, uops: tuple[UOp, ...]) -> None:
        self.uops = uops
        self.ids = {id(node) for node in uops if is_common(node)}
        self.around: dict[int, UOp | None] = {}  # the innermost RANGE, LOOP or IF
        self._closers: dict[int, list[UOp]] = {}  # also the BREAKs and CONTINUEs of a loop
        self._sets: dict[int, list[UOp]] = {}
        self._users: dict[int, list[UOp]] = {}
        self._index()
        self.add(node for node in uops if node.op == "BARRIER" or self._ends_block(node))

    def __contains__(self, node: UOp) -> bool:
        return id(node) in self.ids

    def _index(self) -> None:
        open_: list[UOp] = []
        for node in self.uops:
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
        self._position = {id(node): number for number, node in enumerate(self.uops)}
        barriers = [node for node in self.uops if node.op == "BARRIER"]
        self._last = self._position[id(barriers[-1])] if barriers else -1
        self._around_barriers: set[int] = set()
        for node in barriers:
            block = self.around[id(node)]
            while block is not None and id(block) not in self._around_barriers:
                self._around_barriers.add(id(block))
                block = self.around[id(block)]

    def _ends_block(self, node: UOp) -> bool:
        """Whether it is a RETURN that a barrier may follow, in this turn or a later one."""
        if node.op != "RETURN":
            return False
        if self._position[id(node)] < self._last:
            return True
        block = self.around[id(node)]
        while block is not None:
            if block.op != "IF" and id(block) in self._around_barriers:
                return True
            block = self.around[id(block)]
        return False

    def add(self, nodes: Iterable[UOp]) -> None:
        """These, the blocks they stand in, and all that either depends on."""
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node in self:
                continue
            self.ids.add(id(node))
            block = self.around[id(node)]
            waiting += node.src if block is None else (block, *node.src)
            waiting += self._closers.get(id(node), ())
            if node.op == "VAR":
                waiting += self._sets.get(id(node), ())

    def is_top(self, node: UOp) -> bool:
        """Whether all threads come along: it stands in no block but those outside."""
        block = self.around[id(node)]
        return block is None or block in self

    def own(self) -> set[int]:
        """The ids of nodes that are a thread's own, or would be read from memory: what is left
        could be outside too."""
        waiting = [
            node
            for node in self.uops
            if node not in self and (node.op not in _MOVABLE or not self.is_top(node))
        ]
        found: set[int] = set()
        while waiting:
            node = waiting.pop()
            if id(node) in found or node in self:
                continue
            found.add(id(node))
            waiting += self._users.get(id(node), ())
            if node.op == "SET":
                waiting.append(node.src[0])
        return found

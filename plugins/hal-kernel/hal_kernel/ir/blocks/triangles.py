"""Let threads run a loop together whose end grows or falls by one from a thread to the next.

    for k in range(n - i):         for k in range(n - first):    # the greatest of the block
        total += x[k] * x[k + i]       if i < n - k:
                                           total += x[k] * x[k + i]

All threads of a block share the bounds of the loop on the right. `i` is thread_idx(0) or
global_idx(0), and `first` that of the block's first thread; where the end grows, its last thread
counts. Where the end wraps in some thread of the block, the loop on the right has no iteration, and
the one on the left follows it.
"""

from __future__ import annotations

from hal_core.dtypes import DType, bool_, int32, int64
from hal_kernel.ir.blocks.hoisting import is_shared
from hal_kernel.ir.blocks.rows import ALONG_X
from hal_kernel.ir.uop import UOp

_NEVER = frozenset({"BREAK", "CONTINUE", "RETURN", "BARRIER", "LOOP", "LOCAL", "PRINT"})


def with_triangles(uops: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], list[UOp]]:
    """Return the nodes with such loops as RANGEs that all threads share, and these RANGEs."""
    loops = [node for node in uops if node.op == "RANGE" and not is_shared(node.src[1])]
    ends = {loop: end for loop in loops if (end := _End.of(loop)) is not None}
    if not ends:
        return uops, []
    made: list[UOp] = []
    found: list[UOp] = []
    places = {node.src[0]: n for n, node in enumerate(uops) if node.op == "ENDRANGE"}
    done = 0
    for place, loop in enumerate(uops):
        if loop in ends and place >= done:
            nest = uops[place : places[loop] + 1]
            if not any(node.op in _NEVER for node in nest):
                made += uops[done:place]
                found.append(_written(nest, ends[loop], made))
                done = place + len(nest)
    return (*made, *uops[done:]), found


def _written(nest: tuple[UOp, ...], end: _End, made: list[UOp]) -> UOp:
    """Write a loop behind `made`, then as it was; return its RANGE."""
    loop = nest[0]
    end.made = made
    stop, holds = end.greatest(loop.src[0])
    counter = end.add("RANGE", loop.src[0], stop, loop.src[2], dtype=int32, arg=loop.arg)
    inside = end.add("IF", end.holds(counter), dtype=None)
    new = {loop: counter}
    for node in nest[1:-1]:
        sources = tuple([new.get(source, source) for source in node.src])
        new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
        made.append(new[node])
    end.add("ENDIF", inside, dtype=None)
    end.add("ENDRANGE", counter, dtype=None)
    wraps = end.add("IF", end.add("NOT", holds, dtype=bool_), dtype=None)
    made += nest
    end.add("ENDIF", wraps, dtype=None)
    return counter


class _End:
    """The end of a loop: an index along x, added to shared numbers or taken from them."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.added: list[UOp] = []
        self.taken: list[UOp] = []
        self.limits: list[UOp] = []  # shared numbers that the end is at most
        self.index: list[tuple[UOp, bool]] = []  # and whether the end grows with it
        self.made: list[UOp] = []

    @classmethod
    def of(cls, loop: UOp) -> _End | None:
        """Return the end of a RANGE that starts at a shared number; None for any other."""
        found, (start, stop, step) = cls(loop.line), loop.src
        if loop.dtype is not int32 or step.arg != 1 or not is_shared(start):
            return None
        while stop.op == "MIN" and any(map(is_shared, stop.src)):
            first, second = stop.src
            stop, limit = (first, second) if is_shared(second) else (second, first)
            found.limits.append(limit)
        pending = [(stop, True)]
        while pending:
            part, adds = pending.pop()
            if is_shared(part):
                (found.added if adds else found.taken).append(part)
            elif part.op == "SPECIAL" and part.arg in ALONG_X:
                found.index.append((part, adds))
            elif part.op in ("ADD", "SUB"):
                pending += [(part.src[0], adds), (part.src[1], adds == (part.op == "ADD"))]
            else:
                return None
        return found if len(found.index) == 1 else None

    def add(self, op: str, *src: UOp, dtype: DType | None = int64, arg: object = None) -> UOp:
        """Write a node."""
        self.made.append(UOp(op, dtype, src, arg, self.line))
        return self.made[-1]

    def greatest(self, start: UOp) -> tuple[UOp, UOp]:
        """Write the greatest end in the block, and that no thread's wraps; else it is the start."""
        ((index, self.grows),) = self.index
        base = self.add("CONST", dtype=int32, arg=0)  # a sum that may wrap, as it does in threads
        for op, parts in (("ADD", self.added), ("SUB", self.taken)):
            for part in parts:
                base = self.add(op, base, part, dtype=int32)
        self.base = self.add("CAST", base)
        size = self.add("SPECIAL", dtype=int32, arg=("block_dim", 0))
        first = self.add("CONST", arg=0)
        if index.arg[0] == "global_idx":
            block = self.add("SPECIAL", dtype=int32, arg=("block_idx", 0))
            first = self.add("CAST", self.add("MUL", block, size, dtype=int32))
        last = self.add("ADD", first, self.add("CAST", size))  # or the one behind it
        op = "ADD" if self.grows else "SUB"
        ends = [self.add(op, self.base, thread) for thread in (first, last)]
        low, high = ends if self.grows else ends[::-1]
        least, most = (self.add("CONST", arg=int(end)) for end in (int32.min, int32.max))
        holds = self.add(
            "AND", self.add("GE", low, least, dtype=bool_), self.add("LE", high, most, dtype=bool_),
            dtype=bool_,
        )  # fmt: skip
        stop = self.add("CAST", high, dtype=int32)
        for limit in self.limits:
            stop = self.add("MIN", stop, limit, dtype=int32)
        return self.add("WHERE", holds, stop, start, dtype=int32), holds

    def holds(self, counter: UOp) -> UOp:
        """Write that a thread's loop has an iteration: `counter < base + index`, or `- index`."""
        thread, wide = self.add("CAST", self.index[0][0]), self.add("CAST", counter)
        if self.grows:
            return self.add("GT", thread, self.add("SUB", wide, self.base), dtype=bool_)
        return self.add("LT", thread, self.add("SUB", self.base, wide), dtype=bool_)

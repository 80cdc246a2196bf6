"""Count the iterations of loops in which threads stride over data, so that they run in lockstep.

    i = hal.global_idx(0)                 for q in range(count):
    while i < n:                              j = first + q * step    # `first` of the block
        y[i] = 2.0 * x[i]          ->         if thread_idx < n - j:
        i += step                                 y[j + thread_idx] = 2.0 * x[j + thread_idx]

`i` is an int32; `step` and `n` are the same for all threads. Where `i + step` would wrap, or `step`
is 0 or negative, `count` is 0 and the loop runs as it was written, in an IF that follows.
"""

from __future__ import annotations

from hal_core.dtypes import DType, bool_, int32, int64
from hal_core.geometry import MOST_ADDED
from hal_core.ir.blocks.hoisting import PURE, is_common
from hal_core.ir.uop import CLOSES, OPENS, UOp

_BLOCKS = OPENS | CLOSES
_INDICES = ("thread_idx", "global_idx")
_NEVER = frozenset({"LOOP", "CONTINUE", "RETURN", "BARRIER", "ATOMIC", "CAS", "FENCE"})


def with_strides(uops: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], list[UOp]]:
    """Return the nodes with such loops as RANGEs, and these RANGEs."""
    made: list[UOp] = []
    loops: list[UOp] = []
    done = 0  # nodes that `made` has, or has replaced
    for place, node in enumerate(uops):
        if node.op == "LOOP" and place >= done:
            found = _Stride.of(uops, place)
            if found is not None:
                made += uops[done:place]
                loops.append(found.write(made))
                done = found.end + 1
    return (*made, *uops[done:]), loops


class _Stride:
    """A loop that may be counted: where it stands, and what it is made of."""

    def __init__(self, uops: tuple[UOp, ...], place: int, end: int) -> None:
        self.uops, self.place, self.end = uops, place, end
        self.loop, self.body = uops[place], uops[place + 1 : end]
        self.inside = set(self.body)
        self.line = self.loop.line

    @classmethod
    def of(cls, uops: tuple[UOp, ...], place: int) -> _Stride | None:
        end = next(
            n
            for n in range(place, len(uops))
            if uops[n].op == "ENDLOOP" and uops[n].src[0] is uops[place]
        )
        found = cls(uops, place, end)
        return found if found._is_simple() and found._starts() and found._ends() else None

    def _is_simple(self) -> bool:
        """Find the test, `while i < n`, and the one place that sets `i`."""
        ops = [node.op for node in self.body]
        test = ops.index("IF") if "IF" in ops else len(ops)
        if ops[test + 1 : test + 3] != ["BREAK", "ENDIF"] or ops.count("BREAK") != 1:
            return False
        ahead = self.body[:test]
        if not _NEVER.isdisjoint(ops) or any(
            n.op not in PURE | {"GET", "CONST", "SPECIAL"} for n in ahead
        ):
            return False
        self.test = test
        condition = self.body[test].src[0]
        op, sides = condition.op, condition.src
        if op == "NOT":
            op, sides = {"LT": "GE", "GT": "LE"}.get(sides[0].op, ""), sides[0].src
        if op not in ("GE", "LE"):
            return False
        index, self.limit = sides if op == "GE" else sides[::-1]
        if index.op != "GET" or index.dtype is not int32 or not self._is_shared(self.limit):
            return False
        self.index = index.src[0]
        sets = [
            n for n, node in enumerate(self.body) if node.op == "SET" and node.src[0] is self.index
        ]
        if len(sets) != 1 or sets[0] < test:
            return False
        ahead_ops = ops[: sets[0]]
        if sum(op in OPENS for op in ahead_ops) != sum(op in CLOSES for op in ahead_ops):
            return False  # in a block, which a thread may skip
        if any(node.op == "GET" and node.src[0] is self.index for node in self.body[sets[0] :]):
            return False
        total = self.body[sets[0]].src[1]
        if total.op != "ADD":
            return False
        for old, self.step in (total.src, total.src[::-1]):
            if old.op == "GET" and old.src[0] is self.index and self._is_shared(self.step):
                return True
        return False

    def _is_shared(self, node: UOp) -> bool:
        return is_common(node) or (node.op in PURE and all(map(self._is_shared, node.src)))

    def _starts(self) -> bool:
        """Find `i = hal.global_idx(0) + more` ahead of the loop, in the same block."""
        for node in reversed(self.uops[: self.place]):
            if node.op == "SET" and node.src[0] is self.index:
                self.start, self.more, self.first = node.src[1], 0, node.src[1]
                if self.start.op == "ADD":
                    for part, more in (self.start.src, self.start.src[::-1]):
                        if more.op == "CONST" and 0 <= more.arg <= MOST_ADDED:
                            self.first, self.more = part, more.arg
                return self.first.op == "SPECIAL" and self.first.arg[0] in _INDICES
            if node.op in _BLOCKS:
                return False
        return False

    def _ends(self) -> bool:
        """Tell whether nothing reads `i` behind the loop before it is set again, in the same block.

        In an outer loop, the nodes ahead of this loop run again behind it.
        """
        behind = self.uops[self.end + 1 :]
        ends = [node.src[0] for node in behind if node.op in ("ENDLOOP", "ENDRANGE")]
        if not set(behind).issuperset(ends):
            around = (*self.uops[: self.place], *behind)
            return not any(node.op == "GET" and node.src[0] is self.index for node in around)
        for node in behind:
            if node.op in ("GET", "SET") and node.src[0] is self.index:
                return node.op == "SET"
            if node.op in _BLOCKS:
                break
        return not any(node.op == "GET" and node.src[0] is self.index for node in behind)

    def write(self, made: list[UOp]) -> UOp:
        """Append the loop as a RANGE, then as it was written; return the RANGE."""

        def add(op: str, *src: UOp, dtype: DType | None = int64, arg: object = None) -> UOp:
            made.append(UOp(op, dtype, src, arg, self.line))
            return made[-1]

        def number(value: int, dtype: DType = int64) -> UOp:
            return add("CONST", dtype=dtype, arg=value)

        def copied(node: UOp) -> UOp:
            if node not in self.inside:
                return node
            return add(node.op, *map(copied, node.src), dtype=node.dtype, arg=node.arg)

        limit, step = copied(self.limit), copied(self.step)
        first = number(self.more, int32)
        index, axis = self.first.arg
        if index == "global_idx":
            block, size = (
                add("SPECIAL", dtype=int32, arg=(kind, axis)) for kind in ("block_idx", "block_dim")
            )
            first = add("ADD", add("MUL", block, size, dtype=int32), first, dtype=int32)
        wide = add("CAST", step)
        end = add("CAST", limit)
        fits = add("LE", add("ADD", end, wide), number(2**31), dtype=bool_)
        grows = add("GT", wide, number(0), dtype=bool_)
        counts = add("AND", fits, grows, dtype=bool_)
        whole = add("SUB", end, add("CAST", first))
        more = add("FLOORDIV", add("ADD", whole, add("SUB", wide, number(1))), wide)
        count = add("WHERE", counts, add("MAX", more, number(0)), number(0))
        bounds = number(0, int32), add("CAST", count, dtype=int32), number(1, int32)
        loop = add("RANGE", *bounds, dtype=int32, arg=self.index.arg)
        start = add("ADD", first, add("MUL", loop, step, dtype=int32), dtype=int32)
        left = add("SUB", limit, start, dtype=int32)
        thread = add("SPECIAL", dtype=int32, arg=("thread_idx", axis))
        inside = add("IF", add("LT", thread, left, dtype=bool_), dtype=None)
        new = {self.index: add("ADD", start, thread, dtype=int32)}
        for node in (*self.body[: self.test], *self.body[self.test + 3 :]):
            if node.op == "GET" and node.src[0] is self.index:
                new[node] = new[self.index]
            elif node.op != "SET" or node.src[0] is not self.index:
                sources = (new.get(part, part) for part in node.src)
                new[node] = add(node.op, *sources, dtype=node.dtype, arg=node.arg)
        add("ENDIF", inside, dtype=None)
        add("ENDRANGE", loop, dtype=None)
        wraps = add("IF", add("NOT", counts, dtype=bool_), dtype=None)
        add("SET", self.index, self.start, dtype=None)
        made.extend(self.uops[self.place : self.end + 1])
        add("ENDIF", wraps, dtype=None)
        return loop

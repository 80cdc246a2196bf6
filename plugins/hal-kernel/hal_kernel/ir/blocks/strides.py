"""Find loops in which threads stride over data: `nests.py` writes them with a number of iterations.

    i = hal.global_idx(0)
    while i < n:
        y[i] = 2.0 * x[i]
        i += step

`i` is an int32 or int64; `step` and `n` are the same for all threads. `i` starts as an index of the
thread, plus numbers that all threads of a block share, or as such a number alone. Where it counts
down, `while i >= 0`, such an index is taken from a number: `i = n - 1 - hal.global_idx(0)`.

`for i in range(hal.global_idx(0), n, step)` is such a loop; it also tests whether `i + step` wraps,
and the sign of a `step` that may be negative.
"""

from __future__ import annotations

from hal_core.dtypes import int32, int64
from hal_core.geometry import MOST_ADDED
from hal_kernel.ir.blocks.hoisting import is_shared
from hal_kernel.ir.blocks.rows import MIRRORED, OPPOSITE
from hal_kernel.ir.blocks.running import value_before
from hal_kernel.ir.uop import CLOSES, OPENS, PURE, UOp

_ORDERS = ("LT", "LE", "GT", "GE")


def _one_direction(condition: UOp) -> tuple[UOp, UOp] | None:
    """Return a test and the step of `step > 0 and i < n or step < 0 and i > n`.

    A step that is written as `-s` counts down: the test is then `i > n`.
    """
    sides = [node.src for node in condition.src if node.op == "AND"]
    if len(sides) != 2:
        return None
    (up, below), (down, above) = sides
    step, zero = up.src
    if (up.op, down.op, zero.op, zero.arg) != ("GT", "LT", "CONST", 0) or down.src != up.src:
        return None
    return above if step.op == "NEG" else below, step


class Stride:
    """A loop that may be counted: where it stands, and what it is made of."""

    def __init__(self, uops: tuple[UOp, ...], place: int, ends: dict[UOp, int]) -> None:
        self.uops, self.place, self.ends = uops, place, ends
        self.loop, self.end = uops[place], ends[uops[place]]
        self.body = uops[place + 1 : self.end]

    @classmethod
    def of(cls, uops: tuple[UOp, ...], place: int, ends: dict[UOp, int]) -> Stride | None:
        """Return the stride of the LOOP at a place; None for any other loop.

        `ends` has the place of the end of each loop.
        """
        found = cls(uops, place, ends)
        if not (found._has_test() and found._has_step() and found._starts()):
            return None
        # Nothing may read `i` behind the loop before it is set again.
        gets = [n for n, node in enumerate(uops) if found._is("GET", node)]
        behind = (n for n in gets if not place < n < found.end)
        return None if any(found._reaches(n) for n in behind) else found

    def _has_test(self) -> bool:
        """Find the test that the loop begins with, `while i < n`; nothing else ends it."""
        ops = [node.op for node in self.body]
        self.test = test = ops.index("IF") if "IF" in ops else len(ops)
        leaves = [n.op for n in self.body if n.src == (self.loop,) and n.op != "ENDLOOP"]
        if ops[test + 1 : test + 3] != ["BREAK", "ENDIF"] or leaves != ["BREAK"]:
            return False
        if any(op not in PURE | {"GET", "CONST", "SPECIAL"} for op in ops[:test]):
            return False
        condition, holds = self.body[test].src[0], False
        while condition.op == "NOT":
            condition, holds = condition.src[0], not holds
        self.sign: UOp | None = None  # the step whose sign the test asks for
        if condition.op == "OR" and (both := _one_direction(condition)) is not None:
            condition, self.sign = both
        if condition.op not in MIRRORED:
            return False
        op, (index, self.limit) = condition.op, condition.src
        if is_shared(index):
            op, index, self.limit = MIRRORED[op], self.limit, index
        self.op = op if holds else OPPOSITE[op]
        if index.op != "GET" or index.dtype not in (int32, int64) or self.op not in _ORDERS:
            return False
        self.index, self.dtype, self.up = index.src[0], index.dtype, self.op in ("LT", "LE")
        return index in self.body and is_shared(self.limit)

    def _has_step(self) -> bool:
        """Find the one place that sets `i`, in no inner block, behind all that reads it."""
        sets = [n for n, node in enumerate(self.body) if self._is("SET", node)]
        if len(sets) != 1 or sets[0] < self.test:
            return False
        ahead = [node.op for node in self.body[: sets[0]]]
        if sum(op in OPENS for op in ahead) != sum(op in CLOSES for op in ahead):
            return False
        if any(self._is("GET", node) for node in self.body[sets[0] :]):
            return False
        total = self.body[sets[0]].src[1]
        fits = total.src[0] if total.op == "WHERE" and total.src[2] is self.limit else None
        if fits is not None:
            total = total.src[1]
        if total.op not in ("ADD", "SUB") or (fits is not None and total.op != "ADD"):
            return False
        old, self.step = total.src
        if total.op == "ADD" and old.op != "GET":
            old, self.step = self.step, old
        self.negated = self.up != (total.op == "ADD")  # the step towards the limit is -step
        if not (self._is("GET", old) and old in self.body and is_shared(self.step)):
            return False
        return self.sign in (None, self.step) and (fits is None or self._is_fit(fits, total))

    def _is_fit(self, fits: UOp, total: UOp) -> bool:
        """Tell whether a condition is true if `i + step` does not wrap on its way to the limit."""
        if fits.op == "GT" and fits.src[0] is total:
            return self.up and self._is("GET", fits.src[1])
        if fits.op == "WHERE":  # by the sign of the step, which `nests.py` tests
            sign = fits.src[0]
            zero = sign.src[1] if sign.op == "GT" and sign.src[0] is self.step else None
            if zero is None or (zero.op, zero.arg) != ("CONST", 0):
                return False
            fits = fits.src[1 if self.up else 2]
        if fits.op != ("LE" if self.up else "GE") or not self._is("GET", fits.src[0]):
            return False
        end, most = fits.src[1], int(self.dtype.max if self.up else self.dtype.min)
        if end.op == "SUB" and end.src[0].op == "CONST":
            return bool(end.src[0].arg == most and end.src[1] is self.step)
        step = self.step.arg if self.step.op == "CONST" and end.op == "CONST" else 0
        return bool(step and step == most - end.arg and (step > 0) == self.up)

    def _is(self, op: str, node: UOp) -> bool:
        return node.op == op and node.src[0] is self.index

    def _starts(self) -> bool:
        """Find `i = hal.global_idx(0) + more` ahead of the loop."""
        start = value_before(self.index, self.uops[: self.place])
        if start is None:
            return False
        self.start = start
        self.thread: UOp | None = None  # the index in `start`
        self.added: list[UOp] = []  # to the index
        self.taken: list[UOp] = []  # from their sum
        pending = [(start, True)]
        while pending:
            part, adds = pending.pop()
            inner = part.src[0] if part.op == "CAST" else part
            if is_shared(part):
                (self.added if adds else self.taken).append(part)
            elif part.op in ("ADD", "SUB"):
                first, second = part.src
                pending += [(second, adds == (part.op == "ADD")), (first, adds)]
            elif self.thread is None and adds == self.up and inner.op == "SPECIAL":
                self.thread = inner  # one that is not shared: thread_idx or global_idx
            else:
                return False
        # Such a sum does not wrap in any launch.
        self.near = (
            self.up
            and self.thread is not None
            and all(part.op == "CONST" and 0 <= part.arg <= MOST_ADDED // 4 for part in self.added)
            and len(self.added) < 4
            and not self.taken
        )
        return True

    def _reaches(self, place: int) -> bool:
        """Tell whether a GET may read what the loop has set.

        It cannot if the last SET around it stands behind the loop, or both ahead of it and of any
        loop that repeats it.
        """
        depth, repeated = 0, self.uops[place]
        for before in range(place - 1, -1, -1):
            node = self.uops[before]
            if node.op == "ELSE":
                depth += not depth
            elif node.op in CLOSES:
                depth += 1
            elif node.op in OPENS and depth:
                depth -= 1
            elif node.op in ("LOOP", "RANGE"):
                repeated = node
            elif depth == 0 and self._is("SET", node):
                return before < self.place < self.ends.get(repeated, place)
        return True

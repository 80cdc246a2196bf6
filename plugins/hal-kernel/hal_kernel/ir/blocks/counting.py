"""Write `while` loops that count as loops over a range, so that they run in lockstep.

j = 0                           for j in range(h):
while j < h:              ->        total += x[j * w + i]
    total += x[j * w + i]
    j += 1

`while j <= n` is `while j < n + 1`. With the greatest number as `n` it would never end.

A step of more than one is counted where the limit is a constant, so that no counter wraps. Another
limit may be so large that it does: `strides.py` has such loops. A loop over a window, as those of
`windows.py`, is counted also with a step of 2, 4, 8 and so on: if its counter wraps, it never ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_core.dtypes import DType, bool_, int32, int64
from hal_kernel.ir.blocks.hoisting import is_common
from hal_kernel.ir.blocks.lockstep import first_of
from hal_kernel.ir.blocks.rows import MIRRORED, OPPOSITE
from hal_kernel.ir.blocks.running import value_before
from hal_kernel.ir.blocks.windows import window_of
from hal_kernel.ir.fold.dead_code import without_dead
from hal_kernel.ir.uop import CLOSES, OPENS, PURE, UOp

_SIGNS = {"LT": 1, "GT": -1}  # of a step towards the limit
_STRICT = {"LE": ("LT", 1), "GE": ("GT", -1)}  # what is added to the limit


def with_ranges(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel with such loops as RANGEs."""
    if not any(node.op == "LOOP" for node in uops):
        return uops
    made = list(uops)
    for last in [node for node in uops if node.op == "ENDLOOP"]:  # the innermost loop first
        place, end = made.index(last.src[0]), made.index(last)
        found = _While.of(made, place, end)
        if found is not None:
            made[place : end + 1] = found.written()
    return uops if tuple(made) == uops else without_dead(made)


class _While:
    """A loop that may be counted: its nodes, and what they count."""

    def __init__(self, uops: list[UOp], place: int, end: int) -> None:
        self.loop, self.body, self.last = uops[place], uops[place + 1 : end], uops[end]
        self.before = uops[:place]
        self.inside = set(self.body)
        self.set = {node.src[0] for node in self.body if node.op == "SET"}

    @classmethod
    def of(cls, uops: list[UOp], place: int, end: int) -> _While | None:
        found = cls(uops, place, end)
        return found if found._has_test() and found._steps() and found._starts() else None

    def _has_test(self) -> bool:
        """Find the test that the loop begins with, `while j < limit`; others may follow."""
        ops = [node.op for node in self.body]
        self.test = test = ops.index("IF") if "IF" in ops else len(ops)
        leaves = {n.op for n in self.body if n.src == (self.loop,) and n.op != "ENDLOOP"}
        if leaves != {"BREAK"} or ops[test + 1 : test + 3] != ["BREAK", "ENDIF"]:
            return False
        if self.body[test + 1].src != (self.loop,):
            return False
        if not PURE.union({"GET", "CONST", "SPECIAL"}).issuperset(ops[:test]):
            return False
        condition, holds = self.body[test].src[0], False
        while condition.op == "NOT":
            condition, holds = condition.src[0], not holds
        if condition.op not in MIRRORED:
            return False
        op, (index, self.limit) = condition.op, condition.src
        if index.op != "GET" or index.src[0] not in self.set:
            op, index, self.limit = MIRRORED[op], self.limit, index
        self.op = op if holds else OPPOSITE[op]
        counts = index.op == "GET" and index in self.inside
        if not counts or index.dtype not in (int32, int64):
            return False
        self.variable = index.src[0]
        if self.op in _STRICT and not self._is_strict():
            return False
        if self.op not in _SIGNS:
            return False
        return self._is_fixed(self.limit)

    def _is_strict(self) -> bool:
        """Make a strict test of one like `j >= 0`, which is `j > -1`; tell whether one is equal."""
        self.op, more = _STRICT[self.op]
        dtype, line = self.variable.dtype, self.loop.line
        constant = self.limit.op == "CONST"
        new = UOp("CONST", dtype, (), self.limit.arg + more if constant else more, line)
        self.inside.add(new)
        if constant:
            self.limit = new
            return bool(dtype and dtype.min <= new.arg <= dtype.max)
        self.limit = UOp("ADD", dtype, (self.limit, new), None, line)
        self.inside.add(self.limit)
        return self._stays()

    def _stays(self) -> bool:
        """Tell whether nothing but the test ends the loop: without it the loop never ends."""
        return sum(node.op in ("BREAK", "RETURN") for node in self.body) == 1

    def _is_fixed(self, node: UOp) -> bool:
        """Tell whether a value is the same in all iterations."""
        if node not in self.inside or node.op in ("CONST", "SPECIAL"):
            return True
        if node.op == "GET":
            return node.src[0] not in self.set
        return node.op in PURE and all(map(self._is_fixed, node.src))

    def _steps(self) -> bool:
        """Tell whether each iteration counts once, behind all that reads the variable."""
        depth, changed = 0, False
        for node in self.body:
            depth += (node.op in OPENS) - (node.op in CLOSES)
            if node.op == "GET" and node.src[0] is self.variable and changed:
                return False
            if node.op == "SET" and node.src[0] is self.variable:
                value = node.src[1]
                if changed or depth or value.op not in ("ADD", "SUB"):
                    return False
                old, step = value.src
                if old.op == "CONST" and value.op == "ADD":
                    old, step = step, old
                reads = (old.op, old.src) == ("GET", (self.variable,)) and old in self.inside
                if not reads or step.op != "CONST":
                    return False
                self.step = step.arg if value.op == "ADD" else -step.arg
                changed = self._ends_unwrapped()
                if not changed:
                    return False
        return changed

    def _ends_unwrapped(self) -> bool:
        """Tell whether the counter, of int32 or int64, passes the limit before it would wrap."""
        sign = _SIGNS[self.op]
        if self.step == sign:
            return True
        dtype = self.variable.dtype
        if self.step * sign <= 0 or dtype not in (int32, int64):
            return False
        if self.limit.op != "CONST":
            size = abs(self.step)
            return size & (size - 1) == 0 and self._stays() and self._is_window()
        last = self.limit.arg - sign  # that the loop runs for
        # `j -= -2**31` has a step of 2**31, which is no int32.
        return bool(
            all(dtype.min <= number <= dtype.max for number in (self.step, last + self.step))
        )

    def _starts(self) -> bool:
        """Tell whether the loop counts by one, or starts where lockstep can count it."""
        start = value_before(self.variable, self.before)
        if abs(self.step) == 1 or (start is not None and is_common(start)):
            return True
        counter = self._counter()
        return counter is not None and (first_of(counter) is not None or self._is_window())

    def _is_window(self) -> bool:
        counter = self._counter()
        return counter is not None and window_of(counter) is not None

    def _counter(self) -> UOp | None:
        """Return the loop's RANGE, if the value that it starts with is known."""
        start, dtype = value_before(self.variable, self.before), self.variable.dtype
        step = UOp("CONST", dtype, (), self.step)
        return start and UOp("RANGE", dtype, (start, self.limit, step))

    def written(self) -> list[UOp]:
        """Return the loop as one over a range."""
        made: list[UOp] = []
        line, dtype = self.loop.line, self.variable.dtype

        def copied(node: UOp) -> UOp:
            if node not in self.inside:
                return node
            made.append(UOp(node.op, node.dtype, tuple(map(copied, node.src)), node.arg, line))
            return made[-1]

        start = value_before(self.variable, self.before)
        if start is None:
            start = UOp("GET", dtype, (self.variable,), None, line)
            made.append(start)
        limit = copied(self.limit)
        step = UOp("CONST", dtype, (), self.step, line)
        counter = UOp("RANGE", dtype, (start, limit, step), self.variable.arg, line)
        made += [step, counter]
        new = {self.loop: counter}
        for node in (*self.body[: self.test], *self.body[self.test + 3 :]):
            if node.op == "GET" and node.src[0] is self.variable:
                new[node] = counter
                continue
            sources = tuple([new.get(source, source) for source in node.src])
            if sources != node.src:
                new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
            made.append(new.get(node, node))
        made.append(UOp("ENDRANGE", None, (counter,), None, self.last.line))
        return made


def as_while(loop: UOp, body: Sequence[UOp]) -> tuple[list[UOp], UOp, list[UOp]]:
    """Return a RANGE that counts by one as what stands ahead of a LOOP, the LOOP, and its body."""
    start, stop, step = loop.src
    single = UOp("LOOP", None, (), None, loop.line)
    counter = UOp("VAR", loop.dtype, (), loop.arg, loop.line)
    ahead = [counter, UOp("SET", None, (counter, start), None, loop.line)]
    inside: list[UOp] = []

    def add(op: str, dtype: DType | None, *src: UOp) -> UOp:
        inside.append(UOp(op, dtype, src, None, loop.line))
        return inside[-1]

    value = add("GET", loop.dtype, counter)
    block = add("IF", None, add("LE" if step.arg < 0 else "GE", bool_, value, stop))
    add("BREAK", None, single)
    add("ENDIF", None, block)
    new = {loop: value}
    for node in body:
        sources = tuple([new.get(source, source) for source in node.src])
        if node.op == "BREAK":
            sources = (single,) if node.src[0] is loop else sources
        if sources != node.src:
            new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
        inside.append(new.get(node, node))
    add("SET", None, counter, add("ADD", loop.dtype, value, step))
    return ahead, single, inside

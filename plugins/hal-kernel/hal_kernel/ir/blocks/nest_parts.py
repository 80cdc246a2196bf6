"""Cut loops and IFs that stand in each other into parts, which may run under IFs of their own.

    for k in range(m):                  for k in range(m):      # what is opened
        t = w[k]                            t = w[k]            # a part
        if i < n:                 ->        if i < n:
            total += t * x[i + k]               total += ...    # a part, with the IF around it

A part may use what another computes: all threads compute what cannot fail, and `nests.py` makes
variables of the rest, or computes it again in each IF.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_core.dtypes import bool_
from hal_kernel.ir.blocks.hoisting import is_shared
from hal_kernel.ir.blocks.rows import ALONG_X, MIRRORED, OPPOSITE
from hal_kernel.ir.blocks.strides import Stride
from hal_kernel.ir.loops import iterations
from hal_kernel.ir.uop import ATOMIC_OPS, PURE, UOp

_NEVER = ATOMIC_OPS | {
    "CONTINUE", "RETURN", "BARRIER", "FENCE", "LOCAL", "PRINT", "SHUFFLE", "BALLOT",
}  # fmt: skip
_QUOTIENTS = frozenset({"FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD"})
# Nodes that all threads may compute, also those whose IF does not hold.
_FREE = (PURE - _QUOTIENTS) | {"CONST", "SPECIAL"}
_SHORT = 16  # iterations: compilers unroll a loop of so few


class Part:
    """Nodes that threads run together, if the conditions of all IFs around them hold."""

    def __init__(self, nodes: list[UOp], around: tuple[UOp, ...]) -> None:
        self.nodes, self.around = nodes, around  # `around`: IFs, ELSEs, and LOOPs that are strides


class Nest:
    """A loop or IF that may be written: the strides in it, or which it is itself, and its parts.

    `parts` has each loop that is opened, followed by what is in it, and its end.
    """

    def __init__(
        self, uops: tuple[UOp, ...], place: int, ends: dict[UOp, int], in_parts: bool
    ) -> None:
        self.uops, self.place, self.ends = uops, place, ends
        self.root, self.end = uops[place], ends[uops[place]]
        self.whole = uops[place : self.end + 1]
        self.inside = set(self.whole)
        self.strides: dict[UOp, Stride] = {}
        self.parts: list[Part | UOp] = []
        self.bare: set[UOp] = set()  # nodes of parts that stand outside of the IFs
        self.quotients = _QUOTIENTS if in_parts else frozenset[str]()
        self.free: set[UOp] = set()
        self.again: set[UOp] = set()  # what each IF computes again

    def is_simple(self) -> bool:
        """Find the strides, and cut the loop into parts."""
        loops = [n for n, node in enumerate(self.whole, self.place) if node.op == "LOOP"]
        if not loops or any(node.op in _NEVER for node in self.whole):
            return False
        if self.root.op == "RANGE" and not all(map(is_shared, self.root.src)):
            return False
        for place in loops:
            stride = Stride.of(self.uops, place, self.ends)
            if stride is not None:
                self.strides[stride.loop] = stride
            elif place == self.place:
                return False
        return bool(self.strides) and self._is_cut()

    def has_loop_in_if(self) -> bool:
        """Find RANGEs in IFs that can be moved out of them."""
        if any(node.op in _NEVER or node.op == "LOOP" for node in self.whole):
            return False
        if not self._is_cut():
            return False
        loops = [part for part in self.parts if isinstance(part, UOp) and part.op == "RANGE"]
        around = [part.around for part in self.parts if isinstance(part, Part)]
        tests = [test_of(block) for blocks in around for block in blocks]
        return bool(loops and tests) and all(map(_is_guard, tests))

    def _is_cut(self) -> bool:
        behind = (source for node in self.uops[self.end + 1 :] for source in node.src)
        if self.root.op == "IF" and not self.inside.isdisjoint(behind):
            return False  # `leaving.py` has cut an IF in it, and uses a condition again
        self._find_free()
        return self._cut(self.place, self.end + 1, ()) and self._share()

    def _cut(self, place: int, end: int, around: tuple[UOp, ...]) -> bool:
        """Add the parts of some nodes; tell whether that was possible."""
        part = Part([], around)
        while place < end:
            node = self.uops[place]
            last = self.ends.get(node, place)
            block = self.uops[place : last + 1]
            has_stride = any(inner in self.strides for inner in block)
            loops = [inner for inner in block if inner.op == "RANGE"]
            is_long = any(not 0 <= iterations(loop) <= _SHORT for loop in loops)
            is_cut = has_stride or (node.op in ("RANGE", "IF") and is_long)
            if not (is_cut and self._opens(block)):
                if has_stride:
                    return False
                part.nodes += block
                place = last + 1
                continue
            self.parts.append(part)
            if node.op != "IF":
                self.parts.append(node)
            inner = around if node.op == "RANGE" else (*around, node)
            uses = (n for n in range(place, last) if self.uops[n].src == (node,))
            begin, middle = place + 1, next((n for n in uses if self.uops[n].op == "ELSE"), last)
            if node in self.strides:
                first = begin + self.strides[node].test
                self.parts.append(Part(self._used(begin, first, last), inner))
                begin = first + 3
            if not self._cut(begin, middle, inner):
                return False
            if middle < last and not self._cut(middle + 1, last, (*around, self.uops[middle])):
                return False
            if node.op != "IF":
                self.parts.append(self.uops[last])
            part = Part([], around)
            place = last + 1
        self.parts.append(part)
        return True

    def _used(self, place: int, first: int, last: int) -> list[UOp]:
        """Return the nodes ahead of a stride's test that nodes behind it use, up to its end."""
        needed = {source for node in self.uops[first + 1 : last] for source in node.src}
        found: list[UOp] = []
        for node in reversed(self.uops[place:first]):
            if node in needed:
                needed.update(node.src)
                found.append(node)
        return found[::-1]

    def _opens(self, block: Sequence[UOp]) -> bool:
        """Tell whether the parts of a block may stand in IFs of their own."""
        node = block[0]
        if node.op == "LOOP":
            return node in self.strides
        if node.op == "RANGE":
            leaves = any(other.op == "BREAK" and other.src[0] is node for other in block)
            return not leaves and all(map(is_shared, node.src))
        if node.op == "IF" and not any(inner in self.strides for inner in block):
            halved = any(other.op == "ELSE" and other.src[0] is node for other in block)
            return not halved and (self.is_free(node.src[0]) or node.src[0] in self.again)
        return True

    def _find_free(self) -> None:
        """Find values that all threads may compute, also those whose IF does not hold, and others.

        Quotients of such values by shared numbers, and what is made of them, are `again`.
        """
        indices = {stride.index for stride in self.strides.values()}
        for node in self.whole:
            known = node.op == "RANGE" or (node.op == "GET" and node.src[0] in indices)
            pure = node.op in _FREE
            if known or (pure and all(map(self.is_free, node.src))):
                self.free.add(node)
            elif all(self.is_free(n) or n in self.again for n in node.src) and (
                pure or (node.op in self.quotients and is_shared(node.src[1]))
            ):
                self.again.add(node)

    def is_free(self, node: UOp) -> bool:
        """Tell whether all threads may compute a value."""
        return node in self.free or node not in self.inside

    def _share(self) -> bool:
        """Find what several parts use; tell whether each index is read in its own loop only."""
        home: dict[UOp, Part] = {}
        used: set[UOp] = set()
        for part in self.parts:
            if isinstance(part, UOp):
                continue
            home.update(dict.fromkeys(part.nodes, part))
            used.update(test_of(block) for block in part.around if block not in self.strides)
            own = [self.strides[node].index for node in part.around if node in self.strides]
            for node in part.nodes:
                used.update(source for source in node.src if home.get(source) not in (None, part))
                if node.op != "GET" or any(node.src[0] is index for index in own):
                    continue
                if any(node.src[0] is stride.index for stride in self.strides.values()):
                    return False
        pending = [node for node in used if node in home]
        while pending:
            node = pending.pop()
            if node not in self.bare:
                self.bare.add(node)
                if self.is_free(node) or node in self.again:
                    pending += [source for source in node.src if source in home]
        self.again &= self.bare
        self.bare -= self.again
        self.bare.update(node for node in home if node.op == "VAR")
        return True


def test_of(block: UOp) -> UOp:
    """Return the condition of an IF, or of the IF of an ELSE."""
    return block.src[0].src[0] if block.op == "ELSE" else block.src[0]


def _is_guard(test: UOp, holds: bool = True) -> bool:
    """Tell whether a condition is made of indices, and likely holds for most threads along x.

    `i < n`, `i >= 1` and `i >= k` are, with a counter `k`; `i < 1`, `i >= n` and `i == n` are not.
    """
    if test.op == "NOT":
        return _is_guard(test.src[0], not holds)
    if test.op in ("AND", "OR") and test.dtype is bool_:
        return all(_is_guard(part, holds) for part in test.src)
    sides = [_made_of(side) for side in (*test.src, test)[:2]]
    parts = {part for side in sides for part in side}
    if not all(part.op in _FREE or part.op == "RANGE" or is_shared(part) for part in parts):
        return False
    along = [any(n.op == "SPECIAL" and n.arg in ALONG_X for n in side) for side in sides]
    if not any(along):
        return True
    if test.op not in MIRRORED or all(along):
        return False
    op, end = (test.op, sides[1]) if along[0] else (MIRRORED[test.op], sides[0])
    op = op if holds else OPPOSITE[op]
    constant = all(node.op == "CONST" for node in end)
    if op in ("LT", "LE"):
        return not constant
    return op == "NE" or (op != "EQ" and (constant or any(node.op == "RANGE" for node in end)))


def _made_of(node: UOp) -> set[UOp]:
    """Return a value's node, and what it is computed from, up to what all threads share."""
    pending, seen = [node], set[UOp]()
    while pending:
        part = pending.pop()
        if part not in seen:
            seen.add(part)
            pending += () if is_shared(part) else part.src
    return seen

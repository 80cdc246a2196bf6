"""Rewrite threads that compute several neighbouring elements each, so that these are vectors.

    for k in range(4):               j0 = 4 * i; j1 = 4 * i + 1; ...
        j = 4 * i + k                if j0 < n and j1 < n and j2 < n and j3 < n:
        if j < n:           ->           y[j0] = 2 * x[j0]; y[j1] = 2 * x[j1]; ...
            y[j] = 2 * x[j]          else:
                                         for k in range(4): ...

Where all guards hold the accesses follow each other, and are bundles: `bundles.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_core.dtypes import bool_
from hal_cpu.vectors.functions import operations
from hal_cpu.vectors.rows import is_idle
from hal_cpu.vectors.shapes import Shapes
from hal_cpu.vectors.tree import Block, If, Item, Loop, sides_of
from hal_kernel.ir.uop import ATOMIC_OPS, LEAVES, PURE, TOGETHER, UOp

_MOST_TIMES, _LONGEST = 16, 256  # iterations; operations
_AHEAD = PURE | {"CONST", "SPECIAL"}
_STOPS = LEAVES | TOGETHER | ATOMIC_OPS  # what straight lines have none of


def with_merged_guards(block: list[Item], shapes: Shapes) -> list[Item]:
    """Write short loops out, and test guards of several strided accesses together, ahead of all.

    Returns the IFs and loops that are straight lines now where all guards hold.
    """
    found, place = list[Item](), 0
    straight = _Straight(shapes)
    while place < len(block):
        item = block[place]
        place += 1
        if isinstance(item, UOp):
            if item.op == "SET":
                straight.held[item.src[0]] = item.src[1]
            continue
        part: list[Item] = block[place - 1 :] if isinstance(item, If) else [item]
        merged = part
        if straight.add_all(part) and straight.gains(item):
            merged = _merged(part, straight.nodes, straight.guards)
        if merged is not part:
            block[place - 1 : place - 1 + len(part)] = merged
            place += len(merged) - 1
            found += part
        else:
            for side in sides_of(item):
                found += with_merged_guards(side, shapes)
        straight = _Straight(shapes)
    return found


def _numbers(loop: Loop, shapes: Shapes) -> range:
    """Return what a short loop counts, if it loads or stores at a stride of its iterations."""
    ends = [node.arg for node in loop.node.src if node.op == "CONST"]
    numbers = range(*ends) if len(ends) == 3 else range(0)
    inside = [node for node in shapes.strided if loop in [item for item, _ in shapes.paths[node]]]
    strided = len(numbers) in [shapes.stride(node.src[1]) for node in inside]
    return numbers if strided and len(numbers) <= _MOST_TIMES else range(0)


class _Straight:
    """Copies of the nodes that a thread runs where all guards hold, one behind the other.

    A variable is what was set last.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.nodes: list[UOp] = []
        self.guards: list[tuple[UOp, bool]] = []  # with the truth for which a thread works
        self._new: dict[UOp, UOp] = {}
        self.held: dict[UOp, UOp] = {}  # what variables hold
        self._strided = 0  # stores
        self._size = 0  # operations

    def gains(self, first: Item) -> bool:
        """Tell whether these copies, whose first item is given, are faster than what they copy."""
        return len(self.guards) != 1 and (self._strided > 1 or isinstance(first, Loop))

    def add_all(self, block: Sequence[Item]) -> bool:
        """Add a block; return False if it is long, or more than guards and straight lines."""
        for item in block:
            if self._size > _LONGEST:
                return False
            if isinstance(item, UOp):
                if item.op in _STOPS:
                    return False
                self.add(item)
                continue
            if isinstance(item, Loop) and (numbers := _numbers(item, self.shapes)):
                for number in numbers:
                    self._new[item.node] = UOp("CONST", item.node.dtype, (), number, item.node.line)
                    self.nodes.append(self._new[item.node])
                    if not self.add_all(item.body):
                        return False
                continue
            if not isinstance(item, If) or not self.shapes.is_index_test(item.node.src[0]):
                return False
            works = [side for side in (0, 1) if not is_idle(item.sides[side])]
            if len(works) != 1:
                return False
            condition = item.node.src[0]
            self.guards.append((self._new.get(condition, condition), works[0] == 0))
            if not self.add_all(item.sides[works[0]]):
                return False
        return True

    def add(self, node: UOp) -> None:
        variable = node.src[0] if node.op in ("SET", "GET") else None
        if node.op == "GET" and variable in self.held:
            self._new[node] = self.held[variable]
            return
        sources = tuple([self._new.get(source, source) for source in node.src])
        made = self._new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
        if variable is not None and node.op == "SET":
            self.held[variable] = sources[1]
        self.nodes.append(made)
        self._size += operations(node) if node.op in PURE else 1
        if node.op == "STORE":
            self._strided += (self.shapes.likely_stride(node.src[1]) or 0) > 1


def _merged(block: list[Item], flat: list[UOp], guards: list[tuple[UOp, bool]]) -> list[Item]:
    """Return a block that tests all guards first."""
    inside = set(flat)
    ahead: dict[UOp, UOp] = {}  # what the guards need, computed ahead of all

    def moved(node: UOp) -> UOp | None:
        if node not in inside or node in ahead:
            return ahead.get(node, node)
        sources = [moved(source) for source in node.src]
        if node.op not in _AHEAD or None in sources:
            return None
        made = UOp(node.op, node.dtype, tuple(s for s in sources if s), node.arg, node.line)
        ahead[node] = made
        return made

    whole: UOp | None = None
    tests: list[UOp] = []
    for condition, truth in guards:
        test = moved(condition)
        if test is None:
            return block
        if not truth:
            test = UOp("NOT", bool_, (test,), None, test.line)
            tests.append(test)
        if whole is not None:
            test = UOp("AND", bool_, (whole, test), None, test.line)
            tests.append(test)
        whole = test
    if whole is None:
        return [*flat]
    both = If(UOp("IF", None, (whole,), None, whole.line), (Block(flat), Block(block)))
    return [*ahead.values(), *tests, both]

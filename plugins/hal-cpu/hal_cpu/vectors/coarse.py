"""Rewrite threads that compute several neighbouring elements each, so that these are vectors.

    for k in range(4):               j0 = 4 * i; j1 = 4 * i + 1; ...
        j = 4 * i + k                if j0 < n and j1 < n and j2 < n and j3 < n:
        if j < n:           ->           y[j0] = 2 * x[j0]; y[j1] = 2 * x[j1]; ...
            y[j] = 2 * x[j]          else:
                                         if j0 < n: y[j0] = 2 * x[j0]
                                         ...

Where all guards hold the accesses follow each other, and are bundles: `bundles.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_core.dtypes import bool_
from hal_cpu.vectors.rows import is_idle
from hal_cpu.vectors.shapes import Shapes
from hal_cpu.vectors.tree import If, Item, Loop, nodes_of, walk
from hal_kernel.ir.uop import LEAVES, PURE, TOGETHER, UOp

_MOST_TIMES, _MOST_NODES = 8, 128
_AHEAD = PURE | {"CONST", "SPECIAL"}
_STOPS = LEAVES | TOGETHER  # what straight lines have none of


def written_out(block: list[Item], shapes: Shapes) -> bool:
    """Write out the short loops of which each iteration stores another element of the thread.

    Returns True if there are any.
    """
    found = False
    for place in range(len(block) - 1, -1, -1):
        item = block[place]
        if isinstance(item, UOp):
            continue
        for side in item.sides if isinstance(item, If) else (item.body,):
            found |= written_out(side, shapes)
        numbers = _numbers(item, shapes) if isinstance(item, Loop) else None
        if numbers and isinstance(item, Loop):
            copies: list[Item] = []
            for number in numbers:
                constant = UOp("CONST", item.node.dtype, (), number, item.node.line)
                copies += [constant, *_copied(item.body, {item.node: constant})]
            block[place : place + 1] = copies
            found = True
    return found


def _numbers(loop: Loop, shapes: Shapes) -> range | None:
    """Return what a loop counts, if it is short and stores at a stride of its iterations."""
    ends = [node.arg for node in loop.node.src if node.op == "CONST"]
    inner = list(walk(loop.body))
    if len(ends) != 3 or any(isinstance(item, Loop) for item, _ in inner):
        return None
    numbers, nodes = range(*ends), list(nodes_of(loop.body))
    strided = any(
        node.op == "STORE" and shapes.stride(node.src[1]) == len(numbers) for node in nodes
    )
    small = 1 < len(numbers) <= _MOST_TIMES and len(nodes) * len(numbers) <= _MOST_NODES
    leaves = any(node.op in LEAVES and node.op != "RETURN" for node in nodes)
    return numbers if strided and small and not leaves else None


def with_merged_guards(block: list[Item], shapes: Shapes) -> bool:
    """Test the guards of several strided stores together, ahead of all of them.

    Returns True if there are any.
    """
    found = False
    straight = _Straight(shapes)
    for place, item in enumerate(block):
        if isinstance(item, UOp):
            if item.op == "SET":
                straight.held[item.src[0]] = item.src[1]
            continue
        if isinstance(item, If) and straight.add_all(block[place:]) and straight.gains():
            block[place:] = _merged(block[place:], straight.nodes, straight.guards)
            return True
        for side in item.sides if isinstance(item, If) else (item.body,):
            found |= with_merged_guards(side, shapes)
        straight = _Straight(shapes)
    return found


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

    def gains(self) -> bool:
        few = len(self.nodes) <= _MOST_NODES
        return few and len(self.guards) > 1 and self._strided > 1

    def add_all(self, block: Sequence[Item]) -> bool:
        """Add a block; return False if it has more than guards and straight lines."""
        for item in block:
            if isinstance(item, UOp):
                if item.op in _STOPS:
                    return False
                self.add(item)
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
        return block
    first = block[0]
    line = whole.line if isinstance(first, UOp) else first.node.line
    both = If(UOp("IF", None, (whole,), None, line), ([*flat], list(block)))
    return [*ahead.values(), *tests, both]


def _copied(block: Sequence[Item], new: dict[UOp, UOp]) -> list[Item]:
    """Return a copy of a block, in which nodes are replaced as `new` says."""
    made: list[Item] = []
    for item in block:
        node = item if isinstance(item, UOp) else item.node
        sources = tuple([new.get(source, source) for source in node.src])
        new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
        if isinstance(item, If):
            sides = [_copied(side, new) for side in item.sides]
            made.append(If(new[node], (sides[0], sides[1])))
        elif isinstance(item, UOp):
            made.append(new[node])
    return made

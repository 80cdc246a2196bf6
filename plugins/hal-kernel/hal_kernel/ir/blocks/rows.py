"""Tell what the threads of a row share, and which numbers count them.

A row is the threads of a block that differ along x only. The loop over them is the innermost one,
which becomes vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from hal_core.dtypes import DType, int32, int64
from hal_core.geometry import MOST_ADDED
from hal_kernel.ir.uop import PURE, UOp, array_of, is_fence

MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}
OPPOSITE = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE", "NE": "EQ"}
ALONG_X = (("thread_idx", 0), ("global_idx", 0))
# In kernels up to this size rows are split, and each loop over threads is written several times. In
# larger ones the text would grow too long.
MOST_NODES = 1000
MOST_REGIONS = 8
# A row that is cut in parts is written three times; with 333 nodes it had 7,500 lines of LLVM IR,
# which are too many to be optimised.
MOST_NODES_IN_PARTS = 250
_COMPUTED = PURE | {"CONST"}
PART_START = "PART_START"  # an index along x; quotients.py subtracts it from other indices
_OF_PLACES = frozenset({"ADD", "SUB", "MUL", "NEG"})  # by which elements' places are computed
_OF_COUNTERS = frozenset({"MUL", "ADD", "SUB", "FLOORDIV", "MOD"})
_DEEPEST = 8  # operations on constants and counters, one in the other
_LEAST_ADDED = -(2**31 - 1)
_MOST_TIMES: dict[DType | None, int] = {int32: 2**31, int64: 2**20}


class Limit(NamedTuple):
    """A comparison of exact numbers, for threads of a row.

    It is `number + times * offset + added OP end`.
    """

    number: UOp  # thread_idx(0) or global_idx(0)
    offset: UOp | None  # an int32 or int64, the same for all threads of a row
    added: int
    op: str  # LT, LE, GT, GE or EQ
    end: UOp  # an int32 or int64, the same for all threads of a row
    times: int = 1


class Counted(NamedTuple):
    """A number that grows by one from a thread of a row to the next.

    Its value is `number + times * offset + d`, where `d` is from `least` to `most`, by the counters
    of the region's loops. With an offset this holds only where `number + times * offset`, and that
    plus `low` to `high`, fit int32.
    """

    number: UOp  # thread_idx(0) or global_idx(0)
    offset: UOp | None
    least: int
    most: int
    low: int
    high: int
    times: tuple[int, int] = (1, 1)  # the least and the greatest, by the counters of loops


class Product(NamedTuple):
    """A product of numbers that the threads of a row share, and of constants and counters."""

    factors: tuple[UOp, ...]  # the numbers that are neither constants nor counters
    times: tuple[int, int]  # the least and the greatest product of the constants and counters


class Row:
    """The nodes of a region, and which of them differ between the threads of a row."""

    def __init__(self, nodes: list[UOp], counters: Collection[UOp] = ()) -> None:
        """Compare the threads of a row in one iteration of the loops `counters`."""
        self.nodes, self.inside, self.counters = nodes, set(nodes), counters
        self.differing: set[UOp] = set()
        self._compare(nodes)

    def add(self, node: UOp) -> None:
        """Append a node."""
        self.nodes.append(node)
        self.inside.add(node)
        self._compare((node,))

    def _compare(self, nodes: Iterable[UOp]) -> None:
        for node in nodes:
            op, src = node.op, node.src
            if op in _COMPUTED:
                shared = self.differing.isdisjoint(src)
            elif op == "SPECIAL":
                shared = node.arg not in ALONG_X
            else:
                # A region sets no VAR that was declared outside of it. It may set a SPILL.
                shared = op == "GET" and src[0].op == "VAR" and src[0] not in self.differing
            if not shared and node not in self.counters:
                self.differing.add(node)

    def needed(self, nodes: Iterable[UOp]) -> list[UOp]:
        """Return `nodes`, and the nodes of the region that they depend on, in order."""
        pending = list(nodes)
        found: set[UOp] = set()
        while pending:
            node = pending.pop()
            if node in self.inside and node not in found:
                found.add(node)
                pending += node.src
        return [node for node in self.nodes if node in found]

    def comparison(
        self, test: UOp, same: Mapping[UOp, UOp] | None = None
    ) -> tuple[str, Counted, UOp] | None:
        """Return a comparison as op, a number that counts threads, and one that they share."""
        sides = self.sides(test)
        if sides is None or sides[2].dtype not in (int32, int64):
            return None
        op, number, end = sides
        found = self.counted(number, same or {})
        return found and (op, found, end)

    def sides(self, test: UOp) -> tuple[str, UOp, UOp] | None:
        """Return a comparison as op, a number that differs by thread, and one that they share."""
        if test.op not in MIRRORED:
            return None
        op, (number, end) = test.op, test.src
        if end in self.differing:  # `n > i`
            op, number, end = MIRRORED[op], end, number
        return None if end in self.differing else (op, number, end)

    def counted(
        self, number: UOp, same: Mapping[UOp, UOp], less: Mapping[UOp, int] | None = None
    ) -> Counted | None:
        """Return what a number along x is made of; None for other numbers.

        `same` maps nodes to equal ones. Those of `less` must be added in it as often as this says,
        and are left out.
        """
        left = dict(less) if less else {}
        steps: list[Product] = []
        while number.op != "SPECIAL":
            first, second = (*number.src, number, number)[:2]
            if number in same:
                number = same[number]
            elif number.op == "CAST" and (first.dtype, number.dtype) == (int32, int64):
                number = first
            elif number.op not in ("ADD", "SUB"):
                return None
            else:
                if number.op == "ADD" and self._addend(first):
                    first, second = second, first
                added = self._addend(second)
                if added is None:
                    return None
                least, most = added.times
                times = (least, most) if number.op == "ADD" else (-most, -least)
                factor = added.factors[0] if left and len(added.factors) == 1 else number
                if factor in left and times == (left[factor], left[factor]):
                    del left[factor]
                else:
                    steps.append(added._replace(times=times))
                number = first
        return _summed(number, steps) if number.arg in ALONG_X and not left else None

    def _addend(self, node: UOp) -> Product | None:
        """Return a constant, a counter, an integer that threads share, or a product of these."""
        span = _span(node)
        if span is not None:
            return Product((), span)
        if node.op == "CAST" and node.src[0].op == PART_START:
            node = node.src[0]
        found = self.product(node)
        if found is None or len(found.factors) != 1:
            return None
        # So that the product fits int64, in which limits are computed.
        most = _MOST_TIMES.get(found.factors[0].dtype, -1)
        return found if all(abs(times) <= most for times in found.times) else None

    def product(self, node: UOp) -> Product | None:
        """Return a number as a `Product`; None for one that differs between threads."""
        if node not in self.differing and node.op != "CONST":
            return Product((node,), (1, 1))
        span = _span(node)
        if span is not None or node.op != "MUL":
            return span and Product((), span)
        first = self.product(node.src[0])
        second = first and self.product(node.src[1])
        if first is None or second is None:
            return None
        times = products(first.times, second.times)
        return Product((*first.factors, *second.factors), times)


def computes_with_index(row: Row, known: Collection[UOp]) -> bool:
    """Tell whether threads compute with their global index, not only where an element lies.

    `known` has nodes that are not computed.
    """
    places: set[UOp] = set()  # the index, sums and products of it
    for node in row.nodes:
        if node.op == "SPECIAL" and node.arg == ALONG_X[1]:
            places.add(node)
        elif node in known or places.isdisjoint(node.src):
            continue
        elif node.op in _OF_PLACES or (node.op == "CAST" and node.dtype and node.dtype.is_integer):
            places.add(node)
        elif node.op not in ("LOAD", "STORE") or not places.isdisjoint(node.src[2:]):
            return True
    return False


def loads_parameter(node: UOp) -> bool:
    """Tell whether a node is a load of memory that a parameter points to."""
    return node.op == "LOAD" and array_of(node.src[0]).op == "PARAM"


def shared_loads(row: Row, known: Collection[UOp]) -> list[UOp]:
    """Return the loads that all threads of a row do at one index, with what the indices need.

    A thread that stored to such an element would race with the others, so the element may be loaded
    once, before any thread stores. A compiler that does not know of races cannot do that, because
    pointers may alias. `known` has conditions that hold for all these threads.
    """
    if not any(node.op == "STORE" and array_of(node.src[0]).op == "PARAM" for node in row.nodes):
        return []
    loads: list[UOp] = []
    skipped: list[bool] = []  # for each open block: some thread may not run it
    for node in row.nodes:
        if node.op == "RETURN" or is_fence(node):
            break
        if node.op in ("IF", "RANGE", "LOOP"):
            skipped.append(node.op != "IF" or node.src[0] not in known)
        elif node.op == "ELSE":
            skipped[-1] = True
        elif node.op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
            skipped.pop()
        elif loads_parameter(node) and not any(skipped) and node.src[1] not in row.differing:
            loads.append(node)
    return row.needed(loads)


def _summed(number: UOp, steps: list[Product]) -> Counted | None:
    """Return the sum of an index and what is added to it, the last addition first."""
    offset: UOp | None = None
    times = 1, 1
    least = most = low = high = 0
    for step in reversed(steps):
        if step.factors:
            if offset is not None:
                return None
            (offset,), times = step
            low, high = least, most
            continue
        least, most = least + step.times[0], most + step.times[1]
        low, high = min(low, least), max(high, most)
        # No launch has so many threads that a sum without an offset wraps.
        if low < _LEAST_ADDED or high > MOST_ADDED:
            return None
    return Counted(number, offset, least, most, low, high, times)


def _span(node: UOp, depth: int = _DEEPEST) -> tuple[int, int] | None:
    """Return the least and the greatest value of constants, counters of loops, and sums of these.

    Products, and quotients and remainders by a constant, count too. `depth` operations are looked
    at: a number that is multiplied by itself again and again is made of two to so many parts.
    """
    if node.op == "CONST":
        return node.arg, node.arg
    if depth and node.op == "CAST" and (node.src[0].dtype, node.dtype) == (int32, int64):
        span = _span(node.src[0], depth - 1)  # a product may wrap
        return span if span and int32.min <= span[0] and span[1] <= int32.max else None
    if depth and node.op in _OF_COUNTERS and (node.op == "MUL" or node.dtype in (int32, int64)):
        second = _span(node.src[1], depth - 1)
        first = second and _span(node.src[0], depth - 1)
        return first and second and _applied(node.op, first, second)
    if node.op != "RANGE" or any(source.op != "CONST" for source in node.src):
        return None
    values = range(*(source.arg for source in node.src))
    return (min(values[0], values[-1]), max(values[0], values[-1])) if values else None


def _applied(op: str, first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int] | None:
    """Return the least and the greatest result for numbers of these ranges.

    None where a result other than a product may wrap, and for what is not known.
    """
    (a, b), (c, d) = first, second
    if op == "MUL":
        return products(first, second)
    if op in ("ADD", "SUB"):
        found = (a + c, b + d) if op == "ADD" else (a - d, b - c)
    elif not 0 < c == d:
        return None
    else:
        found = (a // c, b // c) if op == "FLOORDIV" else (0, c - 1)
    return found if int32.min <= min(a, found[0]) and max(b, found[1]) <= int32.max else None


def products(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    """Return the least and the greatest product of two numbers of these ranges."""
    found = [a * b for a in first for b in second]
    return min(found), max(found)

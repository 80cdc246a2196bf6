"""Cut a row into parts in which the quotients of a flat index are the same for all threads.

    k = hal.global_idx(0)               for each part of the row, with its `quotient` and `start`:
    j = k // w                              j = quotient
    i = k % w                    ->         i = k - start
    if k < w * h and i < w - 1:             if k < w * h and i < w - 1:
        y[k] = x[k + 1] + z[j]                  y[k] = x[k + 1] + z[j]

On the right no thread divides, threads that are neighbours access neighbours, and tests of `i` and
`j` are bounds of the loop over the threads of a part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence
from typing import NamedTuple

from hal_core.dtypes import DType, int32, int64, uint32, uint64
from hal_core.geometry import MOST_ADDED
from hal_kernel.ir.blocks.hoisting import is_common
from hal_kernel.ir.blocks.rows import MOST_NODES_IN_PARTS, PART_START, Counted, Row
from hal_kernel.ir.uop import ATOMIC_OPS, PURE, UOp

QUOTIENTS = frozenset({"FLOORDIV", "TRUNCDIV", "SHR"})
REMAINDERS = frozenset({"MOD", "TRUNCMOD", "AND"})
_DIVIDES = QUOTIENTS | REMAINDERS
INDICES = {int32, int64, uint32, uint64}
# Vectors divide by a product; slower is a load by a quotient, which gathers elements. The threads
# behind the last whole vector of a part run one by one, which costs more where they do much.
_LEAST, _LEAST_OF_SOME, _LEAST_OF_MANY = 12, 24, 48
_SOME_NODES, _MANY_NODES, _MANY_GATHERS = 32, 48, 3
_LEAST_OF_TESTS = 32
_UNKNOWN, _DEEPEST_SUM = 2**64, 6
_MOST_FACTORS = 8  # that are compared, of a product
_MOST_CONSTANT = 2**31  # all numbers along x are below it, and no end of a part leaves int64


class Division(NamedTuple):
    """A number along x divided by one that the threads of a row share."""

    # An int32, and not negative but for sums that are rounded down. Generated code may have to test
    # that.
    number: Counted
    divisor: UOp
    quotient: UOp  # new nodes, the same for all threads of a part
    start: UOp  # an int32: the index along x for which the remainder is 0
    added: int  # how often the divisor was added to the number, as once in `(k - s + w) % w`
    floors: bool  # the sum may be negative


class Cut(NamedTuple):
    """A region that divides."""

    row: Row  # as it is for a part of a row
    divisions: list[Division]
    divided: list[UOp]  # the quotients and remainders of these, as they were
    others: list[UOp]  # quotients and remainders that are as they were, and may be products
    divisors: list[UOp]  # of int64, that may be products where these are from 1 to 2**31

    def needed(self) -> list[UOp]:
        """Return the nodes that all divisions are made of, beside the index."""
        needed = [node for d in self.divisions for node in (d.divisor, d.number.offset) if node]
        return [*needed, *(node.src[1] for node in self.others), *self.divisors]


def least_part(row: Row) -> int:
    """Return the number of threads from which on a part is faster than products.

    With products loads by a quotient or a remainder gather; in parts they do not.
    """
    if len(row.nodes) < _SOME_NODES:
        return _LEAST
    gathers = loops = 0
    divided: set[UOp] = set()  # quotients and remainders, and what is made of them
    for node in row.nodes:
        loops += (node.op in ("RANGE", "LOOP")) - (node.op in ("ENDRANGE", "ENDLOOP"))
        divides = node.op in _DIVIDES and node.dtype in INDICES and node.src[0] in row.differing
        if node.op == "LOAD" and node.src[1] in divided:
            narrow = node.dtype is not None and node.dtype.itemsize <= 2
            gathers += _MANY_GATHERS if loops or narrow else 1
        elif divides or (node.op in PURE and not divided.isdisjoint(node.src)):
            divided.add(node)
    if gathers >= _MANY_GATHERS:
        return _LEAST
    return _LEAST_OF_SOME if len(row.nodes) < _MANY_NODES else _LEAST_OF_MANY


def parts(row: Row, least: int = _LEAST, changing: Container[UOp] | None = None) -> Cut | None:
    """Return a region as it is for a part of the row; None if it divides nothing or is too long.

    Constants count from `least` on. `changing` are nodes whose values change while threads run a
    part, if a loop runs around them.
    """
    if len(row.nodes) > MOST_NODES_IN_PARTS:
        return None
    dividing = [node for node in _dividing(row, least) if not changing or node not in changing]
    if not dividing:
        return None
    first = row.nodes.index(dividing[0])
    made = _Parts(row, row.nodes[:first], dividing, changing is None)
    for node in row.nodes[first:]:
        made.add(node)
    found = list(made.divisions.values())
    return Cut(made.row, found, made.divided, made.others, made.divisors) if found else None


def growths(uops: Sequence[UOp], strides: Collection[UOp]) -> dict[UOp, int]:
    """Return the quotients and remainders of a kernel, with their growth along a part of a row.

    `strides` are loops whose counters a row shares. Without them there is none where generated code
    would have to test what is divided.
    """
    if not any(node.op in _DIVIDES and node.dtype in INDICES for node in uops):
        return {}
    nodes = [node for node in uops if not is_common(node)]
    row = Row(nodes, strides)
    dividing = _dividing(row, _LEAST)
    if not dividing:
        return {}
    first = nodes.index(dividing[0])
    made = _Parts(row, nodes[:first], dividing)
    for node in nodes[first:]:
        made.add(node)
    numbers = [division.number for division in made.divisions.values()]
    sums = [number for number in numbers if number.offset is not None and not is_remainder(number)]
    if sums and not strides:
        return {}
    return {node: int(node.op in REMAINDERS) for node in made.divided}


def _dividing(row: Row, least: int) -> list[UOp]:
    """Return the nodes that divide what differs along x by what does not.

    A constant has to be large, and its result part of an index, or if larger, of a condition.
    """
    found: list[UOp] = []
    for node in row.nodes:
        if node.op in _DIVIDES and node.dtype in INDICES and node.src[0] in row.differing:
            size = divisor_size(node)
            large = size is None or least <= size <= _MOST_CONSTANT
            if large and node.src[1] not in row.differing:
                found.append(node)
    if all(divisor_size(node) is None for node in found):
        return found
    indices = [
        node.src[1] for node in row.nodes if node.op in ("LOAD", "STORE") or node.op in ATOMIC_OPS
    ]
    tests = [node.src[0] for node in row.nodes if node.op == "IF"]
    accessing, steering = (set(row.needed(nodes)) for nodes in (indices, indices + tests))
    return [
        node
        for node in found
        if (size := divisor_size(node)) is None
        or node in (accessing if size < _LEAST_OF_TESTS else steering)
    ]


class _Parts:
    """A region in which quotients and remainders are replaced."""

    def __init__(
        self, whole: Row, before: list[UOp], dividing: Iterable[UOp], wraps: bool = False
    ) -> None:
        self.wraps = wraps  # `(k - s + w) % w` may cut the row
        self.whole, self.row, self.dividing = whole, Row(before, whole.counters), set(dividing)
        self.new: dict[UOp, UOp] = {}
        self.divisions: dict[tuple[object, ...], Division] = {}
        self.divided: list[UOp] = []  # the quotients and remainders of these, as they were
        self.others: list[UOp] = []
        self.divisors: list[UOp] = []
        self.small: set[UOp] = set()  # both: where dividends are from 0 to 2**31, so are these
        self.multiples: dict[object, UOp] = {}  # factors -> the start that is the product

    def add(self, node: UOp) -> None:
        sources = tuple([self.new.get(source, source) for source in node.src])
        division = self._division(node, sources)
        if division is None and node in self.dividing:
            if uncast(node.src[0]) in self.small:
                self.small.add(node)
            if node in self.small or (node.dtype is int32 and node.op in ("FLOORDIV", "MOD")):
                self.others.append(node)
            elif is_moderate(UOp(node.op, node.dtype, sources), (node.src[1],)):
                self.divisors.append(node.src[1])
        start = self.multiples.get(_factors(sources)) if node.op == "MUL" else None
        if division is None and start is not None and node.dtype is int32:
            self.new[node] = start
        elif division is None and start is not None:
            self._keep(node, "CAST", node.dtype, (start,))
        elif division is None and sources == node.src:
            self.row.add(node)
        elif division is None:
            self._keep(node, node.op, node.dtype, sources)
        else:
            self.divided.append(node)
            if division.number.least >= 0 and not (division.floors and node.op == "FLOORDIV"):
                self.small.add(node)
            if node.op in QUOTIENTS:
                self.new[node] = division.quotient
                return
            self._keep(node, "SUB", int32, (division.number.number, division.start))
            if node.dtype is not int32:
                self._keep(node, "CAST", node.dtype, (self.new[node],))

    def _keep(self, old: UOp, op: str, dtype: DType | None, sources: tuple[UOp, ...]) -> None:
        self.new[old] = UOp(op, dtype, sources, old.arg, old.line)
        self.row.add(self.new[old])

    def _division(self, node: UOp, sources: tuple[UOp, ...]) -> Division | None:
        """Return the division of which a node is the quotient or the remainder."""
        if node not in self.dividing:
            return None
        divisor, size = node.src[1], divisor_size(node)
        if size is not None:
            divisor = UOp("CONST", int64, (), size, node.line)
        number, added = self._number(sources[0]), 0
        if number is None and self.wraps and node.op == "MOD" and _is_signed(node):
            number, added = self._wrapped(sources[0], node.src[1])
        if number is None or (number.offset is None and number.least and not self._floors(node)):
            return None
        floors = number.offset is not None and not is_remainder(number)
        floors = floors and node.op in ("FLOORDIV", "MOD") and _is_signed(node)
        floors = floors and (size is None or size <= 2**31 - MOST_ADDED)
        key = (number.number.arg, *number[1:], size or divisor, node.dtype, added, floors)
        if key not in self.divisions:
            quotient = UOp("PART_QUOTIENT", node.dtype, (), None, node.line)
            start = UOp(PART_START, int32, (), number.number.arg, node.line)
            self.divisions[key] = Division(number, divisor, quotient, start, added, floors)
            plain = number.offset is None and not number.least
            if plain and node.dtype in (int32, int64) and node.op not in ("SHR", "AND"):
                self.multiples[_factors((quotient, node.src[1]))] = start
        return self.divisions[key]

    def _wrapped(self, node: UOp, divisor: UOp) -> tuple[Counted | None, int]:
        """Return k + s for the sum k % w + s, which has the same remainder by w; s is no constant.

        Likewise for k - s + w and k % w - s + w, with a 1, as w is added. A row shares s.
        """
        starts: list[dict[UOp, int]] = [{}]
        for found in self.divisions.values():
            plain = found.number.offset is None and not found.number.least
            constants = found.divisor.op == divisor.op == "CONST"  # a PARAM has a number, too
            same = found.divisor is divisor or (constants and found.divisor.arg == divisor.arg)
            if plain and same:
                starts.append({found.start: -1})
        for less in starts:
            for added in (0, 1):
                number = self.row.counted(node, {}, {**less, divisor: 1} if added else less)
                if number and number.offset not in (None, divisor) and self._is_ahead(number):
                    return number, added
        return None, 0

    def _floors(self, node: UOp) -> bool:
        """Tell whether a sum with a constant, which may be negative, is divided in parts.

        `(i + 1) % w` alone is i + 1 but for few threads, which `middle` finds.
        """
        if node.op not in ("FLOORDIV", "MOD") or not _is_signed(node):
            return False
        divisor, size = node.src[1], divisor_size(node)
        same = (
            n for n in self.dividing if n.src[1] is divisor or (size and divisor_size(n) == size)
        )
        return any(n.op == "FLOORDIV" or n.src[0].op == "SPECIAL" for n in same)

    def _number(self, node: UOp) -> Counted | None:
        """Return the parts of a number that grows by one from a thread to the next; else None."""
        node = uncast(node)
        number = self.row.counted(node, {})
        if number is not None and is_remainder(number):
            return None if number.least or number.most else number
        return number if number is not None and self._is_ahead(number) else None

    def _is_ahead(self, number: Counted) -> bool:
        """Tell whether all threads of a row add the same to their index, which is known ahead."""
        offset = number.offset
        if number.least != number.most or number.times[0] != number.times[1]:
            return False
        if offset is None:
            return True
        before = offset in self.whole.inside or offset not in self.row.inside
        return before and offset.op not in (PART_START, "PART_QUOTIENT")


def _factors(sources: Iterable[UOp]) -> frozenset[tuple[object, int]]:
    """Return the factors of a product, and how often each is one.

    Of many, some are products: a number may be multiplied by itself again and again.
    """
    found: list[object] = []
    pending = [*sources]
    while pending:
        node = pending.pop()
        if node.op == "MUL" and len(found) + len(pending) < _MOST_FACTORS:
            pending += node.src
        else:
            found.append(node if node.src or node.arg is None else (node.op, node.arg))
    return frozenset(Counter(found).items())


def is_remainder(number: Counted) -> bool:
    """Tell whether a number is a remainder, plus constants or counters perhaps.

    No such sum wraps.
    """
    offset = number.offset
    started = offset is not None and offset.op == PART_START and offset.arg == number.number.arg
    return started and number.times == (-1, -1)


def uncast(node: UOp) -> UOp:
    """Return what an integer of 32 bits or more is made of by casts of such integers."""
    while node.op == "CAST" and node.src[0].dtype in INDICES:
        node = node.src[0]
    return node


def is_moderate(node: UOp, divisors: Collection[UOp]) -> bool:
    """Tell whether an int64 is divided that a float64 holds; `divisors` are from 1 to 2**31."""

    def most(number: UOp, depth: int) -> int:
        op, src = number.op, number.src
        if op == "CONST":
            return abs(int(number.arg))
        cast = op == "CAST" and src[0].dtype is int32
        shared = number in divisors or op == "PART_QUOTIENT"
        if cast or shared or (op == "MOD" and src[1] in divisors):
            return 2**31
        if depth and op == "FLOORDIV" and src[1] in divisors:
            return most(src[0], depth - 1)
        known = depth and op in ("ADD", "SUB")
        return sum(most(source, depth - 1) for source in src) if known else _UNKNOWN

    divides = node.op in ("FLOORDIV", "MOD") and node.dtype is int64 and node.src[1] in divisors
    return divides and most(node.src[0], _DEEPEST_SUM) < 2**48


def _is_signed(node: UOp) -> bool:
    """Tell whether a division of a number below 0 is one of the same number in int32."""
    number = node.src[0]
    while number.op == "CAST" and number.dtype in (int32, int64):
        number = number.src[0]
    return node.dtype is int32 or (node.dtype is int64 and number.dtype in (int32, int64))


def divisor_size(node: UOp) -> int | None:
    """Return the constant that a node divides by, if it is positive; else 0.

    None for `//` and `%` by a number that is no constant.
    """
    divisor = node.src[1]
    if divisor.op != "CONST":
        return 0 if node.op in ("SHR", "AND") else None
    if node.op == "SHR":
        return 1 << divisor.arg if 0 <= divisor.arg < 31 else 0
    if node.op == "AND":
        return 0 if divisor.arg & (divisor.arg + 1) else int(divisor.arg) + 1
    return max(int(divisor.arg), 0)

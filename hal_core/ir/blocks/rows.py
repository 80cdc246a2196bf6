"""Tell what the threads of a row share, and which numbers count them.

A row is the threads of a block that differ along x only. The loop over them is the innermost one,
which becomes vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from hal_core.dtypes import DType, bool_, int32, int64
from hal_core.geometry import MOST_ADDED
from hal_core.ir.blocks.divisions import DIVISIONS
from hal_core.ir.blocks.hoisting import PURE
from hal_core.ir.blocks.loops import iterations, unrolled
from hal_core.ir.uop import BITWISE, UOp, array_of

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
# Nodes of a region, and for each gather of bytes, up to which threads one by one are faster.
_MOST_SCALAR, _MOST_FOR_EACH = 100, 16
_MOST_APART = 8  # elements from a thread's to the next one's, up to which vectors sort them
_MOST_ASKED = 10**4  # questions about one number, 0.1 s
_COMPUTED = PURE | {"CONST"}
_SPREADS = frozenset({"MUL", "SHL"})
PART_START = "PART_START"  # an index along x; quotients.py subtracts it from other indices
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
        if node.op in ("RETURN", "FENCE"):
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


def hidden_parts(row: Row, known: Collection[UOp]) -> list[UOp]:
    """Return the numbers of which indices are made and LLVM 22 draws wrong conclusions.

    These are divisions behind an IF, by what is no constant, and low bits in loops that compilers
    do not unroll. `known` has conditions that hold for all these threads.
    """
    tests = (n for n, node in enumerate(row.nodes) if node.op == "IF" and node.src[0] not in known)
    behind = row.nodes[next(tests, len(row.nodes)) :]
    wrong = {node for node in behind if node.op in DIVISIONS and node.src[1].op != "CONST"}
    loops = {node for node in row.nodes if node.op in ("RANGE", "LOOP")}
    if loops and not unrolled(tuple(row.nodes)) >= loops:
        wrong.update(node for node in row.nodes if node in row.differing and is_low_bits(node))
    return _in_indices(row, wrong)


def low_bits(uops: Sequence[UOp]) -> list[UOp]:
    """Return the low bits of which indices are made in a kernel with loops.

    In some loops clang 22 takes them for neighbours in any vector of them.
    """
    loops = {node for node in uops if node.op in ("RANGE", "LOOP")}
    if not loops or not any(is_low_bits(node) for node in uops):
        return []
    row = Row(list(uops), loops)
    return _in_indices(row, {node for node in row.differing if is_low_bits(node)})


def _in_indices(row: Row, nodes: Collection[UOp]) -> list[UOp]:
    """Return those of `nodes` of which indices are made."""
    if not nodes:
        return []
    pending = [part for node in row.nodes if node.op in ("LOAD", "STORE") for part in node.src[:2]]
    found: set[UOp] = set()
    while pending:
        node = pending.pop()
        if node in row.inside and node not in found and node.op != "LOAD":
            found.add(node)
            pending += node.src
            if node.op == "GET":
                sets = (part for part in row.nodes if part.op == "SET")
                pending += [part.src[1] for part in sets if part.src[0] is node.src[0]]
    return [node for node in row.nodes if node in nodes and node in found]


def is_low_bits(node: UOp) -> bool:
    """Tell whether a node is `k & 7`, `k % 8` or `uint8(k)`."""
    source, dtype = node.src[0] if node.src else node, node.dtype
    if dtype is None or not dtype.is_integer:
        return False
    if node.op == "CAST" and source.dtype is not None:
        return source.dtype.is_integer and dtype.itemsize < source.dtype.itemsize
    if node.op not in ("AND", "MOD", "TRUNCMOD") or node.src[1].op != "CONST":
        return False
    size = node.src[1].arg + (node.op == "AND")
    return bool(size > 0 and size & (size - 1) == 0)


def doubling(row: Row, known: Collection[UOp]) -> set[UOp]:
    """Return the short loops in which threads make a number they share of itself twice, `r * r`.

    LLVM 22 writes all iterations out, and then asks whether threads share the last number, for that
    both of which it was made, and both for each of these: 16 iterations took minutes. `known` has
    conditions that hold for all these threads.
    """
    short = unrolled(tuple(row.nodes))
    if not short:
        return short
    made: dict[UOp, int] = {}  # node -> how many numbers of the iteration before are in it
    around: list[UOp] = []
    slow: list[tuple[UOp, UOp]] = []  # a variable, and a loop that makes it of itself too often
    for node in row.nodes:
        if node.op == "IF":
            made[node] = made.get(node.src[0], 0) + 1  # it keeps a number, or sets another
        elif node.op == "GET":
            made[node] = 1
        elif node.op in PURE or node.op == "SET":
            made[node] = sum(made.get(source, 0) for source in node.src)
        if node.op in ("IF", "RANGE", "LOOP"):
            around.append(node)
        elif node.op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
            around.pop()
        elif node.op == "SET":
            numbers = made[node]
            for block in reversed(around):
                if block.op == "IF":
                    numbers += made[block]
                elif block in short and numbers ** iterations(block) > _MOST_ASKED:
                    slow.append((node.src[0], block))
    differing, before = set[UOp](), -1
    while slow and len(differing) > before:
        before = len(differing)
        for node in row.nodes:
            if node.op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
                around.pop()
                continue
            own = node.arg in ALONG_X or (node.op == "LOAD" and not loads_parameter(node))
            if own or not (differing.isdisjoint(node.src) and differing.isdisjoint(around)):
                differing.add(node)
                if node.op == "SET":
                    differing.add(node.src[0])
            if node.op in ("IF", "RANGE", "LOOP"):
                around.append(node)
                if node.op == "IF" and node.src[0] in known:
                    differing.discard(node)
    return {loop for variable, loop in slow if variable not in differing}


def compared_apart(row: Row) -> set[UOp]:
    """Return the comparisons of two elements that lie several apart from the next thread's.

    LLVM loads them as long vectors, which it sorts. It would compare those instead, and sort bits,
    which processors do one by one: `a[8 * i + k] != b[8 * i + k]` took five times as long. It does
    not for a choice of such elements.
    """
    along, far, loaded, found = set[UOp](), set[UOp](), set[UOp](), set[UOp]()
    if [node.op for node in row.nodes].count("LOAD") < 2 or not any(
        node.op in _SPREADS and "CONST" in (node.src[0].op, node.src[1].op)
        for node in row.nodes
        if node.dtype in (int32, int64)
    ):
        return found
    test: UOp | None = None  # of the last IF
    for node in row.nodes:
        op, src = node.op, node.src
        if node.arg in ALONG_X:
            along.add(node)
        elif op == "LOAD" and src[1] in far and loads_parameter(node):
            loaded.add(node)
        elif op in MIRRORED and loaded.issuperset(src):
            found.add(node)
        elif op == "IF":
            test = src[0]
        elif op in ("WHERE", "SET") and loaded.issuperset(src[1:]):
            found -= {src[0] if op == "WHERE" else test}
        elif op in PURE and not along.isdisjoint(src):
            along.add(node)
            spread = op in _SPREADS and "CONST" in (src[0].op, src[1].op)
            if spread or not far.isdisjoint(src):
                far.add(node)
        elif op in PURE and all(source.op == "CONST" or source in loaded for source in src):
            loaded.add(node)
    return found


def takes_bytes_by_data(row: Row, bundled: UOp | None = None) -> bool:
    """Tell whether threads access elements of one or two bytes where data say, and little else.

    No processor gathers such elements: compilers take vectors apart for them, which takes twice as
    long as threads one by one. Where threads compute floats, vectors gain more than that. Elements
    that lie further apart than vectors sort them, `x[12 * i + 4]`, and indices like `i ^ c` count
    as data: a compiler does not see how far neighbours are apart, unless `c` is a constant, and `i`
    the number by which threads are `bundled`. So do `x[(n - i) * w]` and `x[i * w * 3]`. For
    `x[i * w]` a compiler asks at run time whether `w` is 1, and else takes threads one by one.
    """
    nodes = len(row.nodes)
    if nodes > _MOST_SCALAR and nodes > _MOST_FOR_EACH * sum(n.op == "LOAD" for n in row.nodes):
        return False
    found, data, along = 0, set[UOp](), set[UOp]()
    falling, wide = set[UOp](), set[UOp]()  # numbers that fall along x, or grow by a parameter
    for node in row.nodes:
        op, src = node.op, node.src
        if node.dtype is not None and node.dtype.is_float:
            return False
        if op in ("LOAD", "STORE") and src[1] in data:
            found += src[0].dtype is not None and src[0].dtype.itemsize <= 2
        if op == "LOAD":  # of a loop's counter, as `t[k]`, all threads load the same
            loaded = src[1] in along or src[1] in data
        else:
            loaded = op == "GET" and node in row.differing
        moves = op in PURE or op == "RANGE"
        if (moves and not along.isdisjoint(src)) or node.arg in ALONG_X:
            along.add(node)
        times = next((part.arg for part in src if part.op == "CONST"), 0) if op == "MUL" else 0
        far = abs(times) > _MOST_APART
        if node in along:
            if not falling.isdisjoint(src) or (op == "SUB" and src[1] in along):
                falling.add(node)
            again = not wide.isdisjoint(src)
            if again or (
                op == "MUL" and any(n not in row.differing and n.op != "CONST" for n in src)
            ):
                wide.add(node)
                far = far or node in falling or (op == "MUL" and again)
        far = far and node in along and bundled is None
        bits = op in BITWISE and node in along and node.dtype is not bool_
        bits = bits and (bundled is None or (bundled in src and src[1].op != "CONST"))
        if loaded or far or bits or (moves and not data.isdisjoint(src)):
            data.add(node)
    return found > 0 and nodes <= max(_MOST_SCALAR, _MOST_FOR_EACH * found)


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

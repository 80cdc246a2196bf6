"""Find the threads for which clamps and tests are decided: the middle of the loop along x.

    for t in range(end):                        for t in range(1, end):
        y[t] = x[t] - x[max(t - 1, 0)]    ->        y[t] = x[t] - x[t - 1]
                                                for t in range(1):
                                                    y[t] = x[t] - x[max(t - 1, 0)]

In the middle no index is clamped, so that vectors load neighbours, and no test along x is left. The
threads ahead of the middle and behind it, the rims, run the region as it was written.

    node                        in the middle       where
    MAX(t + k, low)             t + k               low <= t + k
    MIN(t + k, high)            t + k               t + k <= high
    ABS(t + k)                  t + k               0 <= t + k
    MAX(t + k * n, low)         t + k * n           it is for the first and last k of a loop
    MOD(t + k, n)               t + k               0 <= t + k < n
    MOD(t + k + n, n)           t + k               0 <= t + k < n
    t + k < n                   True                it is
    t + k < 3, t + k == n       False               it is not
    4 * t + k < n               True                it is for the greatest k of a loop

We guess that most threads are above a constant and below any other limit, but between two limits
where tests ask for that: `t >= p and t < q`. A constant of 31 or more in `==` or `!=`, as in
`t == 255`, is taken for the last thread, so that most are below it. A wrong guess makes the middle
small; the rims are then large, and as fast as without a middle.

Where tests decide only what is loaded, `inside` gives a middle in which loads need no masks, and
`beyond` finds the threads past the end of the data, which load nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import NamedTuple

from hal_core.dtypes import int32, int64
from hal_kernel.ir.blocks.quotients import is_remainder
from hal_kernel.ir.blocks.rows import OPPOSITE, Counted, Limit, Row
from hal_kernel.ir.blocks.thread_bounds import parts_of
from hal_kernel.ir.uop import ATOMIC_OPS, COMPARISON, LEAVES, PURE, UOp

_CLAMPS = frozenset({"MIN", "MAX", "MOD", "ABS"})
_HOLDS = {"MIN": "LE", "MAX": "GE", "ABS": "GE", "MOD": "LT"}  # where a clamp is its operand
_GUESSED = _CLAMPS | COMPARISON
_FLOW = frozenset(
    {"SET", "GET", "WHERE", "IF", "ELSE", "ENDIF", "RANGE", "ENDRANGE", "LOOP", "ENDLOOP"}
)
_SIDES = {"IF": (True,), "ELSE": (False,), "WHERE": (True, False)}  # what a condition may be
_FAR = 1 << 30
_NEAR_THE_END = 31  # the least constant in `==` that is guessed to be the last thread


class Middle(NamedTuple):
    """Facts about the threads within the limits, which lie next to each other."""

    limits: list[Limit]
    known: dict[UOp, bool]  # conditions, with their values
    same: dict[UOp, UOp]  # node -> an equal one: a source of it, or a new node of its sources
    solving: list[UOp]  # new nodes that the limits need, in order


def guessed(row: Row, decided: dict[UOp, bool]) -> Middle | None:
    """Return the threads for which all conditions outside of `decided` go as guessed; or None."""
    found = Middle([], {}, {}, [])
    variables = _Variables(found, decided)
    starts: set[UOp] | None = None
    for node in row.nodes:
        op = node.op
        if op in _FLOW:
            variables.walk(node)
        if op not in _GUESSED or node not in row.differing or node in decided:
            continue
        if op in _CLAMPS:
            _add_clamp(found, row, node)
        elif (sides := row.sides(node)) is not None:
            op, number, end = sides
            # The rim is at the start of the row, unless the constant is near the greatest int32.
            if end.op == "CONST":
                first = end.arg < _FAR
            else:
                starts = _starts(row, decided) if starts is None else starts
                first = node in starts
            if op in ("EQ", "NE") and first and end.arg >= _NEAR_THE_END:
                first = False  # `t == 255`
            holds = op in (("GT", "GE", "NE") if first else ("LT", "LE", "NE"))
            op = op if holds else OPPOSITE[op]
            if op == "NE":
                op = "GT" if first else "LT"
            if _limit(found, row, op, number, end):
                found.known[node] = holds
    for node in variables.read:
        del found.same[node]
    return found if found.known or found.same else None


def _starts(row: Row, decided: Collection[UOp]) -> set[UOp]:
    """Return the tests that compare with the start of an interval, in which most threads may be.

    They are `t >= p` in `t >= p and t < q`, and `t < p` in `t < p or t >= q`, or ahead of
    `elif t >= q`.
    """
    found = set[UOp]()
    path: list[list[tuple[UOp, bool]]] = []  # for each open block: what holds in it
    for node in row.nodes:
        if node.op in ("ELSE", "ENDIF"):
            path.pop()
        condition = node.src[0].src[0] if node.op == "ELSE" else node.src[0] if node.src else node
        for holds in _SIDES.get(node.op, ()):
            parts = list(parts_of((condition,), None, holds))
            tests: dict[UOp, str] = {}
            for test, value in (*chain.from_iterable(path), *parts):
                if test not in decided and (sides := row.sides(test)) is not None:
                    tests[test] = sides[0] if value else OPPOSITE[sides[0]]
            if not {"LT", "LE"}.isdisjoint(tests.values()):
                found.update(test for test, op in tests.items() if op in ("GT", "GE"))
            if node.op != "WHERE":
                path.append(parts)
    return found


class _Variables:
    """The values of a region's variables where conditions go as guessed.

    ii = i - 1
    if ii < 0:      # no thread of the middle
        ii += w
    if ii >= w:     # `ii` is `i - 1`
        ii -= w
    """

    def __init__(self, found: Middle, decided: dict[UOp, bool]) -> None:
        self.found, self.decided = found, decided
        self.values: dict[UOp, UOp] = {}
        self.read: list[UOp] = []  # the nodes in `found.same` that these values are
        self.skipped: UOp | None = None  # the IF that all threads jump over to its ELSE or end

    def walk(self, node: UOp) -> None:
        """Go on to a node that is no test."""
        op = node.op
        block = node if op == "IF" else node.src[0] if node.src else node
        if op == "GET" and block in self.values:
            self.found.same[node] = self.values[block]
            self.read.append(node)
        elif op == "WHERE" and block in self.found.known:
            self.found.same[node] = node.src[1 if self.found.known[block] else 2]
            self.read.append(node)
        elif op == "SET" and self.skipped is None:
            self.values[block] = node.src[1]
        elif op in ("RANGE", "LOOP", "ENDRANGE", "ENDLOOP"):
            self.values.clear()
        elif op in ("IF", "ELSE", "ENDIF"):
            test = block.src[0]
            holds = self.found.known.get(test, self.decided.get(test))
            if self.skipped is block:
                self.skipped = None
            elif self.skipped is None and holds is None:
                self.values.clear()  # what a block sets is not known behind it
            elif self.skipped is None and op != "ENDIF" and holds is (op == "ELSE"):
                self.skipped = block


def middle(row: Row, guess: Middle | None) -> Middle | None:
    """Return the guess where it decides what is accessed or written, and when a loop ends; or None.

    Tests that decide only what is loaded are left to `inside`. Clamps of other values are as fast
    in a row that is not split.
    """
    if guess is None:
        return None
    around: list[UOp] = []
    pending: list[UOp] = []
    sets: dict[UOp, list[UOp]] = {}  # variable -> its values, and what decides between them
    for node in row.nodes:
        if node.op == "IF":
            around.append(node.src[0])
        elif node.op == "ENDIF":
            around.pop()
        elif node.op in ATOMIC_OPS or node.op in ("LOAD", "STORE"):
            pending.append(node.src[1])
        elif node.op == "SET":
            sets.setdefault(node.src[0], []).extend((node.src[1], *around))
        spills = node.op == "SET" and node.src[0].op == "SPILL"
        if spills or node.op == "STORE" or node.op in ATOMIC_OPS or node.op in LEAVES:
            pending.extend(around)
    found: set[UOp] = set()
    while pending:
        node = pending.pop()
        if node in row.inside and node not in found:
            found.add(node)
            pending += (*node.src, *sets.get(node, ()))
    return _gaining(guess, found)


def inside(row: Row, guess: Middle | None) -> Middle | None:
    """Return the guess where it decides only what is loaded; else None.

    In the middle no loads need masks, which are slow where they are many.
    """
    return guess and _gaining(guess, set(row.needed(_tests_of_loads(row))))


def _gaining(guess: Middle, wanted: set[UOp]) -> Middle | None:
    """Return the guess where it decides one of the wanted nodes; else None."""
    return None if wanted.isdisjoint((*guess.known, *guess.same)) else guess


def _limit(found: Middle, row: Row, op: str, number: UOp, end: UOp) -> bool:
    """Limit the threads to those for which `number OP end`, if that can be solved."""
    if end.dtype is None or not end.dtype.is_integer:
        return False
    counted = row.counted(number, found.same)
    if counted is not None and end.dtype in (int32, int64):
        _add_limit(found, op, counted, end)
        return True
    if number.op not in PURE:
        return False
    from hal_kernel.ir.blocks.solving import solved  # few kernels need it; its import takes long

    solution = solved(row, op, number, end)
    if solution is None:
        return False
    found.limits.extend(solution.limits)
    found.solving.extend(solution.nodes)
    return True


def beyond(row: Row, decided: dict[UOp, bool]) -> Middle | None:
    """Return the threads of a row for which no index of a test is below its end; or None.

    They load nothing. Masked loads would be slow where there is no memory: the processor looks up
    the address of each vector before it sees that no lane asks for its element.
    """
    found = Middle([], {}, {}, [])
    for test in _tests_of_loads(row):
        compared = None if test in decided else row.comparison(test)
        if compared is None or compared[0] not in ("LT", "LE"):
            continue
        op, number, end = compared
        if number.offset is not None:  # without one, a block beyond the end need not be launched
            _add_limit(found, OPPOSITE[op], number, end)
            found.known[test] = False
    return found if found.known else None


def _tests_of_loads(row: Row) -> Iterable[UOp]:
    """Return the conditions that loads hang on, in a fixed order."""
    around: list[UOp] = []
    tests: dict[UOp, None] = {}
    for node in row.nodes:
        if node.op == "IF":
            around.append(node.src[0])
        elif node.op == "ENDIF":
            around.pop()
        elif node.op == "LOAD":
            tests.update(dict.fromkeys(around))
    return tests


def _add_clamp(found: Middle, row: Row, node: UOp) -> None:
    """Note where a MIN, MAX, ABS or MOD along x is its operand."""
    value, end = (*node.src, UOp("CONST", int32, (), 0))[:2]
    if end in row.differing and node.op != "MOD":
        value, end = end, value
    if end in row.differing or end.dtype not in (int32, int64):
        return
    number = row.counted(value, found.same)
    if number is None:
        if node.op == "MOD":
            _add_wrap(found, row, node)
        elif _limit(found, row, _HOLDS[node.op], value, end):
            found.same[node] = value
        return
    # `t % 64` wraps no neighbour's index around, so that no middle is likely.
    if node.op == "MOD" and number == Counted(number.number, None, 0, 0, 0, 0):
        return
    found.same[node] = value
    if node.op == "MOD":
        # `(t - 1 + n) % n` is t - 1: the n that was added is subtracted again.
        constant = end.op == "CONST" and (number.offset is None or is_remainder(number))
        if (number.offset is end and number.times == (1, 1)) or (
            constant and 0 < end.arg < 2 * number.least
        ):
            # The sum must be an int32; without an offset it always is.
            _add_limit(found, "GE", number, UOp("CONST", int64, (), int(int32.min)))
            found.same[node] = UOp("SUB", node.dtype, (value, end), None, node.line)
            less = end.arg if constant else 0
            least, most = number.least - less, number.most - less
            offset = number.offset if constant else None
            number = number._replace(offset=offset, least=least, most=most)
        _add_limit(found, "GE", number, UOp("CONST", int64, (), 0))
    _add_limit(found, _HOLDS[node.op], number, end)


def _add_wrap(found: Middle, row: Row, node: UOp) -> None:
    """Note where a remainder is `(t + k + n) % n`, with a `k` that a row shares, and is t + k."""
    value, end = node.src
    number = row.counted(value, found.same, {end: 1})
    if number is None:
        return
    found.same[node] = UOp("SUB", node.dtype, (value, end), None, node.line)
    most, wide = UOp("CONST", int64, (), int(int32.max)), UOp("CAST", int64, (end,))
    room = UOp("SUB", int64, (most, wide))
    found.solving.extend((most, wide, room))
    for op, limit in (("GE", UOp("CONST", int64, (), 0)), ("LT", end), ("LE", room)):
        _add_limit(found, op, number, limit)


def _add_limit(found: Middle, op: str, number: Counted, end: UOp) -> None:
    base, offset = number.number, number.offset
    added = number.least if op in ("GT", "GE") else number.most
    least, most = (UOp("CONST", int64, (), int(value)) for value in (int32.min, int32.max))
    for times in sorted(set(number.times)):  # between the two are the sums of other iterations
        found.limits.append(Limit(base, offset, added, op, end, times))
        if offset is not None:  # the sum does not wrap
            found.limits.append(Limit(base, offset, number.low, "GE", least, times))
            found.limits.append(Limit(base, offset, number.high, "LE", most, times))

"""Go through the parts of a row in which the quotients of a flat index stay the same.

    j = k // w                quotient, begin = first // w, -(first % w)
    i = k % w           ->    start = 0
                              while start < width:
                                  end = min(width, begin + w)
                                  ...  # the threads from start up to end: j is quotient
                                  if end == begin + w:
                                      quotient, begin = quotient + 1, end
                                  start = end

So a row divides once. Where a remainder of another division is divided, `k % (w * h) // w`, the
quotient is 0 again where the other's changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hal_core.dtypes import bool_, float64, int32, int64, uint32
from hal_core.geometry import MOST_ADDED
from hal_kernel.ir.blocks.quotients import REMAINDERS, Cut, Division, divisor_size, is_remainder
from hal_kernel.ir.blocks.rows import Row
from hal_kernel.ir.math.value import Page, Value
from hal_kernel.ir.uop import UOp


class _State(NamedTuple):
    """A division as it is in a part; its numbers are int64."""

    start: UOp  # of the Division
    parent: int | None  # the place of the division whose remainder is divided
    quotient: Value
    begin: Value  # the thread for which the remainder is 0; it may lie ahead of the row
    after: Value  # the first thread that has another quotient
    first: Value  # `begin` of the first part
    variables: tuple[Value, Value]  # quotient and begin


class Walk:
    """The nodes of a loop over the parts of a row: those ahead of it, in it, and at its end."""

    def __init__(self, cut: Cut, least: int) -> None:
        """Let parts be long where all divisors are `least` or more."""
        line = cut.divisions[0].quotient.line
        self.ahead, self.inside, self.behind = (Page([], line) for _ in range(3))
        self.width = UOp("PART_WIDTH", int32)  # threads of the row; the renderer has these values
        self.first = UOp("PART_FIRST", int32)  # the global index of its first thread
        self._width, self._first = (
            Value(node, self.ahead).cast(int64) for node in (self.width, self.first)
        )
        self.long: Value | None = None  # a bool; None: they are, or `least` is 0
        # Likewise that divisors are 1 and more, and dividends numbers of which the next is larger.
        self.usable: Value | None = None
        self.known: dict[UOp, UOp] = {}  # what stands for a value in the region -> that value
        self._states: list[_State] = []
        end = Value(self._width.node, self.inside)
        for division in cut.divisions:
            self.open(division, least)
            end = end.apply("MIN", self._states[-1].after)
        for node in cut.others:
            if node.src[1].op != "CONST":
                self._require(Value(node.src[1], self.ahead).cast(int64).compare("GE", 1))
        for divisor in dict.fromkeys(cut.divisors):
            value = Value(divisor, self.ahead)
            self._require(value.compare("GE", 1))
            self._require(value.compare("LE", 2**31))
        self.end = end.cast(int32).node  # the thread behind the part
        end = Value(end.node, self.behind)
        changes: list[Value] = []
        for state in self._states:
            quotient, begin, after = (Value(v.node, self.behind) for v in state[2:5])
            changed = end.compare("EQ", after)
            quotient = changed.where(quotient + 1, quotient)
            if state.parent is not None:
                quotient = changes[state.parent].where(0, quotient)
                changed = changed.new("OR", bool_, changed, changes[state.parent])
            changes.append(changed)
            begin = changed.where(end, begin)
            for variable, value in zip(state.variables, (quotient, begin), strict=True):
                value.statement("SET", variable, value)

    def _require(self, holds: Value) -> None:
        self.usable = self.usable.new("AND", bool_, self.usable, holds) if self.usable else holds

    def open(self, division: Division, least: int) -> None:
        """Divide for the first thread of the row, and read the state that a part finds."""
        if division.divisor.op == "CONST":
            divisor = self._width.const(division.divisor.arg)
        else:
            divisor = Value(division.divisor, self.ahead).cast(int64)
            self._require(divisor.compare("GE", 1))
            if division.floors or division.number.least < 0:  # then `-1 % w` is w - 1
                self._require(divisor.compare("LE", 2**31 - MOST_ADDED))
            if least:
                long = divisor.compare("GE", least)
                self.long = self.long.new("AND", bool_, self.long, long) if self.long else long
        starts, parent = [state.start for state in self._states], None
        if is_remainder(division.number) and division.number.offset is not None:
            parent = starts.index(division.number.offset)
            number = -self._states[parent].first
        else:
            number = self.number(division)
        quotient = number.apply("FLOORDIV", divisor)
        first = quotient * divisor - number
        variables = (
            quotient.new("VAR", int64, arg="quotient"),
            quotient.new("VAR", int64, arg="begin"),
        )
        for variable, value in zip(variables, (quotient, first), strict=True):
            value.statement("SET", variable, value)
        quotient, begin = (Value(v.node, self.inside).new("GET", int64, v) for v in variables)
        after = begin + Value(divisor.node, self.inside)
        state = _State(division.start, parent, quotient, begin, after, first, variables)
        self._states.append(state)
        index = begin
        if division.number.number.arg[0] == "global_idx":
            index = begin + self._first
        self.known[division.start] = index.cast(int32).node
        kind = Value(division.quotient, self.inside).dtype
        self.known[division.quotient] = quotient.cast(kind).node

    def number(self, division: Division) -> Value:
        """Return what is divided, for the first thread of the row.

        Neither that nor the remainder, nor a constant added to it, wraps: `is_remainder` says so.
        """
        number = self._first.const(division.number.least)
        if division.number.number.arg[0] == "global_idx":
            number = self._first + number
        if division.number.offset is not None:
            offset = Value(division.number.offset, self.ahead).cast(int64)
            number = offset * division.number.times[0] + number
            if division.number.offset.dtype is int64:  # so that neither product nor sum wraps
                self._require(offset.compare("GE", -(2**31)))
                self._require(offset.compare("LE", 2**31))
            total = number
            if division.added:
                total = number + Value(division.divisor, self.ahead).cast(int64) * division.added
            if division.floors:  # no sum of the row, or of a remainder of its indices, wraps
                self._require((total - self._first).compare("GE", -(2**31)))
            else:
                self._require(number.compare("GE", 0))
            self._require((total + self._width).compare("LE", 2**31 - MOST_ADDED))
        return number


def with_inverses(row: Row, divided: Iterable[UOp]) -> Row:
    """Return a region in which an int32, or what fits it, is divided by 1 and more by a product.

    In float64 `(k + 0.5) / w - 0.5` is rounded to the quotient, towards minus infinity: an error of
    2**-20 / w changes none. Vectors multiply, where a processor divides one number after the other.
    """
    made, new = Row([]), dict[UOp, UOp]()
    quotients: dict[tuple[UOp, ...], Value] = {}
    wanted = {node for node in divided if divisor_size(node) is None}
    for node in row.nodes:
        sources = tuple([new.get(source, source) for source in node.src])
        if node.op == "ELSE" or node.op.startswith("END"):
            quotients.clear()  # what a block computes is not known behind it
        if node not in wanted:
            if sources != node.src:
                new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
            made.add(new.get(node, node))
            continue
        page = Page([], node.line)
        number, divisor = (Value(source, page) for source in sources)
        quotient = quotients.get(sources)
        if quotient is None:
            inverse = 1.0 / divisor.cast(float64)
            shifted = number.cast(int32).cast(float64) * inverse + (inverse * 0.5 - 0.5)
            shifted = shifted + inverse.format.shifter
            quotient = shifted.bitcast(int64).cast(int32).cast(number.dtype)
            quotients[sources] = quotient
        if node.op in REMAINDERS:
            # Processors multiply vectors of 32 bits. Sums of int32 may wrap, but as part of an
            # index they would not.
            product = Value(quotient.node, page).cast(uint32) * divisor.cast(uint32)
            remainder = number.cast(uint32) - product
            new[node] = remainder.cast(int32).cast(number.dtype).node
        else:
            new[node] = quotient.node
        for made_node in page.uops:
            made.add(made_node)
    return made

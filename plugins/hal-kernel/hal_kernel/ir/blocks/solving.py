"""Solve a guard for the index of the thread: `4 * i + 1 < n` holds for `i < (n + 2) // 4`.

One side of the guard is made of steps that grow with the index, or stay. They are undone from the
last to the first, in int64:

    step              it is less than `end` for
    x + a             x < end - a
    x * k, x << s     x < ceil(end / k)        where k > 0
    x // k, x >> s    x < end * k              where k > 0
    x & -k            x < ceil(end / k) * k    k is a power of two

In a loop over k, `4 * i + k < n` holds in all iterations for those threads for which it holds with
the greatest k. Where that decides anything, `middle` asks for these threads.

A step may wrap from some thread on, as `4 * i` does for `i >= 2**29`. Those threads, `wrapping`,
keep their test. They are all threads where a step wraps for the first one already.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

from hal_core.dtypes import int32, int64, uint32
from hal_kernel.ir.blocks.rows import ALONG_X, Limit, Product, Row, products
from hal_kernel.ir.math.value import Page, Value
from hal_kernel.ir.uop import UOp

Number = Value | int  # a constant, or an int64
Range = tuple[int, int]  # the least and the greatest value

_THREADS = (0, 2**31 - 1)
_FITS = {int32: (-(2**31), 2**31 - 1), uint32: (0, 2**32 - 1), int64: (-(2**60), 2**60)}
_FACTORS = frozenset({"MUL", "SHL"})
_QUOTIENTS = frozenset({"FLOORDIV", "TRUNCDIV", "SHR"})
_MOST_ADDED = 1 << 52  # in one step, so that sums do not leave int64


class Solved(NamedTuple):
    """A guard as limits of threads, which hold for the threads ahead of `wrapping`."""

    limits: list[Limit]
    wrapping: list[Limit]  # the threads for which a step may wrap: one limit, or none
    nodes: list[UOp]  # that the limits need, in order


class _Step(NamedTuple):
    """A step, and what its result can be where nothing has wrapped."""

    kind: str  # + * / &
    low: Number  # a sum adds `low` to `high`, as loops of the region count
    high: Number
    reach: Range  # before it is made to fit
    fits: Range

    @property
    def range(self) -> Range:
        return max(self.reach[0], self.fits[0]), min(self.reach[1], self.fits[1])


def solved(row: Row, op: str, number: UOp, end: UOp) -> Solved | None:
    """Solve `number OP end`, in all iterations of the region's loops; None: that is not known.

    All threads of a row share `end`.
    """
    page = Page([], number.line)
    chain: list[UOp] = []
    while number.op != "SPECIAL":
        chain.append(number)
        grows = next((part for part in number.src if row.product(part) is None), number)
        if grows is number or number.op not in _KINDS:
            return None
        number = grows
    steps = _steps(chain[::-1], page, row) if number.arg in ALONG_X else None
    if not steps or op == "NE":
        return None
    given: Number = int(end.arg) if end.op == "CONST" else Value(end, page).cast(int64)
    at = _within(given, steps[-1].range)
    after = _apply("ADD", _within(given, (steps[-1].range[0] - 1, steps[-1].range[1])), 1)
    limits: list[Limit] = []
    if op in ("LT", "LE", "EQ"):
        limits.append(_limit(number, "LT", _undone(steps, at if op == "LT" else after)))
    if op in ("GT", "GE", "EQ"):
        lowest = [step._replace(high=step.low) for step in steps]
        limits.append(_limit(number, "GE", _undone(lowest, after if op == "GT" else at)))
    wrapped = _first_wrapped(steps, page)
    if wrapped is None:
        return Solved(limits, [], page.uops)
    limits.append(_limit(number, "LT", wrapped))
    return Solved(limits, [_limit(number, "GE", wrapped)], page.uops)


_KINDS = {"ADD": "+", "SUB": "+", "CAST": "+", "ABS": "+", "AND": "&"}
_KINDS |= dict.fromkeys(_FACTORS, "*") | dict.fromkeys(_QUOTIENTS, "/")


def _steps(chain: list[UOp], page: Page, row: Row) -> list[_Step] | None:
    """Return the steps from a thread's index on; None if one of them may fall."""
    steps: list[_Step] = []
    before = _THREADS
    for node in chain:
        if node.dtype not in _FITS or (node.op == "ABS" and before[0] < 0):
            return None
        found = _operand(node, page, row)
        if found is None:
            return None
        low, high, (least, most) = found
        kind = _KINDS[node.op]
        if kind == "+":
            reach = before[0] + least, before[1] + most
        elif kind == "&":
            reach = before[0] & -least, before[1]
        elif most < 1 or (node.op == "TRUNCDIV" and before[0] < 0):
            return None
        else:  # a factor below 1 makes `wrapping` 0
            times = {max(1, least), most}
            ends = [a * k if kind == "*" else a // k for a in before for k in times]
            reach = min(ends), max(ends)
        step = _Step(kind, low, high, reach, _FITS[node.dtype])
        if step.range != reach and node.dtype is int64:
            return None
        steps.append(step)
        before = step.range
    return steps


def _operand(node: UOp, page: Page, row: Row) -> tuple[Number, Number, Range] | None:
    """Return the least and the greatest number that a step adds, and their range.

    For other steps, both are the number by which they multiply or divide.
    """
    if node.op in ("CAST", "ABS"):
        return 0, 0, (0, 0)
    found = [(part, product) for part in node.src if (product := row.product(part)) is not None]
    if len(found) != 1 or (node.op not in ("ADD", "MUL", "AND") and found[0][0] is node.src[0]):
        return None
    part, product = found[0]
    if part.op == "CONST" and node.op not in ("ADD", "SUB"):
        value = int(part.arg)
        if node.op in ("SHL", "SHR"):
            value = 1 << value % (64 if node.dtype is int64 else 32)
        elif node.op == "AND":
            value = -value if node.dtype is not uint32 else 2**32 - value
            if value < 1 or value & (value - 1):
                return None
        if value > _FITS[int64][1]:  # or what is undone would leave int64
            return None
        return value, value, (value, value)
    single = product.factors == (part,)  # else a product, or a loop's counter
    if node.op not in ("ADD", "SUB") and not (single and node.op in ("MUL", "FLOORDIV")):
        return None
    return _multiples(product, page, -1 if node.op == "SUB" else 1)


def _multiples(product: Product, page: Page, sign: int) -> tuple[Number, Number, Range] | None:
    """Return the least and the greatest value of such a product, and their range.

    The product of the factors may wrap: sums that fit are the same then.
    """
    low, high = sorted(sign * times for times in product.times)
    range_ = products((low, high), _FITS[int32]) if product.factors else (low, high)
    if max(-range_[0], range_[1]) > _MOST_ADDED:
        return None
    if not product.factors:
        return low, high, range_
    if {part.dtype for part in product.factors} != {int32}:
        return None
    whole = Value(product.factors[0], page)
    for factor in product.factors[1:]:
        whole = whole.apply("MUL", Value(factor, page))
    value = whole.cast(int64)
    ends = [
        _apply("MUL", value, times) if times != 1 else value for times in dict.fromkeys((low, high))
    ]
    if low == high:
        return ends[0], ends[0], range_
    return _apply("MIN", *ends), _apply("MAX", *ends), range_


def _undone(steps: list[_Step], end: Number) -> Number:
    """Return what the index must be less than for the last step's result to be less than `end`."""
    for step in reversed(steps):
        value = step.high
        if step.kind == "+":
            end = _apply("ADD", end, -value)
        elif step.kind == "*":
            end = _apply("FLOORDIV", _apply("ADD", end, _apply("ADD", value, -1)), value)
        elif step.kind == "/":  # no product leaves int64
            end = _apply("MUL", _within(end, step.range), value)
        else:
            end = _apply("AND", _apply("ADD", end, _apply("ADD", value, -1)), -value)
    return end


def _first_wrapped(steps: list[_Step], page: Page) -> Number | None:
    """Return the index of the first thread for which a step wraps, or may fall; None without one.

    As the steps grow, it is the first thread of all, or one for which a result is too large.
    """
    wrapped: Number = 2**31
    fits: list[Value] = []  # conditions of the first thread
    first: Number = 0
    for place, step in enumerate(steps):
        least, most = step.fits
        if step.reach[1] > most:
            wrapped = _apply("MIN", wrapped, _undone(steps[: place + 1], most + 1))
        value = -step.low if step.kind == "&" else step.low
        first = _apply(_OPS[step.kind], first, value)
        if step.reach[0] < least:
            fits.append(_value(first, page) > least - 1)
        if step.kind in "*/" and isinstance(value, Value):
            fits.append(value > 0)
    for condition in fits:
        wrapped = condition.where(wrapped, _value(0, page))
    return None if wrapped == 2**31 else wrapped


_OPS = {"+": "ADD", "*": "MUL", "/": "FLOORDIV", "&": "AND"}
_OF_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "ADD": operator.add, "MUL": operator.mul, "FLOORDIV": operator.floordiv, "AND": operator.and_,
    "MIN": min, "MAX": max,
}  # fmt: skip


def _apply(op: str, a: Number, b: Number) -> Number:
    if isinstance(a, Value):
        return a.apply(op, b)
    return _value(a, b.page).apply(op, b) if isinstance(b, Value) else _OF_NUMBERS[op](a, b)


def _within(number: Number, range_: Range) -> Number:
    """Return the nearest end of a result that is in this range."""
    return _apply("MIN", _apply("MAX", number, range_[0]), range_[1] + 1)


def _value(number: Number, page: Page) -> Value:
    if isinstance(number, Value):
        return number
    page.uops.append(UOp("CONST", int64, (), number, page.line))
    return Value(page.uops[-1], page)


def _limit(index: UOp, op: str, end: Number) -> Limit:
    node = end.node if isinstance(end, Value) else UOp("CONST", int64, (), end)
    return Limit(index, None, 0, op, node)

"""Find a guard that holds for every c-th thread of a row only: `t % c == 0`.

    for t in range(block):                for t in range(0, block, c):
        if t % c == 0:             ->         y[t] += y[t + c // 2]
            y[t] += y[t + c // 2]

All threads of the row share `c`. `t & (c - 1) == 0` is the same where `c` is a power of two.
"""

from __future__ import annotations

from typing import NamedTuple

from hal_core.dtypes import int32
from hal_kernel.ir.blocks.rows import OPPOSITE, Row
from hal_kernel.ir.blocks.thread_bounds import conditions
from hal_kernel.ir.uop import UOp

_REMAINDERS = frozenset({"MOD", "TRUNCMOD", "AND"})
_LEAST_CONSTANT = 16  # by a smaller one vectors divide fast, and mask their lanes


class Step(NamedTuple):
    """A guard that holds for the threads whose `number + added` is a multiple of a number."""

    test: UOp
    holds: bool  # what the test then is
    remainder: UOp  # a MOD, TRUNCMOD or AND, which is 0 for these threads
    number: UOp  # thread_idx(0) or global_idx(0)
    added: int
    divisor: UOp  # an int32, the same for all threads of the row; for AND, the multiple less 1


def step(row: Row) -> Step | None:
    """Return such a guard of a region; None without one."""
    if not any(node.op in _REMAINDERS and node in row.differing for node in row.nodes):
        return None
    for test, holds in conditions(row):
        sides = row.sides(test) if test in row.differing else None
        if sides is None or (sides[0] if holds else OPPOSITE[sides[0]]) != "EQ":
            continue
        _, remainder, end = sides
        if remainder.op not in _REMAINDERS or remainder.dtype is not int32:
            continue
        value, divisor = remainder.src
        if remainder.op == "AND" and value not in row.differing:
            value, divisor = divisor, value
        if end.op != "CONST" or end.arg != 0 or divisor in row.differing:
            continue
        number = row.counted(value, {})
        if number is None or number.offset is not None or number.least != number.most:
            continue
        multiple, power = _LEAST_CONSTANT, True
        if divisor.op == "CONST":
            multiple = divisor.arg + 1 if remainder.op == "AND" else abs(divisor.arg)
            power = remainder.op != "AND" or multiple & divisor.arg == 0
        if multiple >= _LEAST_CONSTANT and power:
            return Step(test, holds, remainder, number.number, number.least, divisor)
    return None


def reads_below(row: Row) -> bool:
    """Tell whether threads load what lies below the elements that they store.

    Where vectors begin with the last threads, no load waits for a store just ahead of it, which
    lies in part of what is loaded.
    """
    stored = {node.src[0] for node in row.nodes if node.op == "STORE"}
    return any(
        node.op == "LOAD" and node.src[0] in stored and node.src[1].op == "SUB"
        for node in row.nodes
    )

"""Lower the functions of subgroups: the threads of a block that pass values on without memory.

Two operations suffice. A scan takes six steps, and a sum is what the scan gives the last thread:

    x:     1  2  3  4        each takes what the thread 1 before has
           1  3  5  7        then 2 before
           1  3  6 10
"""

from __future__ import annotations

import ast

from hal_core.dtypes import DType, bool_, int32, uint64
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import dtype_of
from hal_kernel.lang.constants import Number
from hal_kernel.lang.expressions import Expressions

MOST_THREADS = 64  # of a subgroup
_COMBINE = {"sum": "ADD", "min": "MIN", "max": "MAX"}


def lowered(x: Expressions, at: ast.Call, name: str, operands: list[UOp | Number]) -> UOp:
    """Return the value of a call."""
    made = _Writer(x, at)
    if not operands:
        return made.special(name)
    if name == "ballot":
        condition = x.condition(at.args[0]) if not isinstance(operands[0], UOp) else operands[0]
        return made.ballot(x.typed(at.args[0], condition, bool_))
    value = x.settled(at.args[0], operands[0], None)
    dtype = dtype_of(value)
    if dtype.itemsize < 4:
        wide = "int32" if dtype.is_integer or dtype is bool_ else "float32"
        problem = f"{name} takes dtypes of 32 and 64 bits, not {dtype}"
        raise x.error(at.args[0], problem, f"Cast first: hal.{wide}(x).")
    if name in ("shuffle", "shuffle_xor"):
        other = operands[1]
        if not isinstance(other, UOp) and not (type(other) is int and 0 <= other < MOST_THREADS):
            problem = f"a subgroup has no thread {other!r}: it has {MOST_THREADS} at most"
            raise x.error(at.args[1], problem, "Write an int32 from 0 to hal.subgroup_size() - 1.")
        lane = x.typed(at.args[1], other, int32)
        if name == "shuffle_xor":
            lane = made.node("XOR", made.special("subgroup_lane"), lane)
        return made.shuffle(value, lane)
    scan = made.scan(_COMBINE[name.rpartition("_")[2]], value)
    if name == "subgroup_inclusive_sum":
        return scan
    one, zero = made.number(1), made.number(0)
    if name == "subgroup_exclusive_sum":
        lane = made.special("subgroup_lane")
        before = made.shuffle(scan, made.node("MAX", made.node("SUB", lane, one), zero))
        return made.node("WHERE", made.node("GT", lane, zero), before, made.number(0, dtype))
    return made.shuffle(scan, made.node("SUB", made.special("subgroup_threads"), one))


class _Writer:
    """Write the nodes of one call."""

    def __init__(self, x: Expressions, at: ast.Call) -> None:
        self.x, self.at = x, at
        x.emit.line = x.text.mark(at)

    def node(self, op: str, *src: UOp) -> UOp:
        dtype = bool_ if op in ("LT", "GE", "GT") else src[-1].dtype
        return self.x.emit.node(op, dtype, src)

    def number(self, value: int, dtype: DType = int32) -> UOp:
        return self.x.emit.constant(value, dtype)

    def special(self, kind: str) -> UOp:
        return self.x.emit.node("SPECIAL", int32, (), (kind, 0))

    def shuffle(self, value: UOp, lane: UOp) -> UOp:
        return self._together(self.x.emit.node("SHUFFLE", value.dtype, (value, lane)))

    def ballot(self, condition: UOp) -> UOp:
        return self._together(self.x.emit.node("BALLOT", uint64, (condition,)))

    def _together(self, made: UOp) -> UOp:
        # The place is for the error that not all threads reach it.
        self.x.emit.together[id(made)] = self.x.text, self.at
        return made

    def scan(self, combine: str, value: UOp) -> UOp:
        """Return the combined values of the subgroup's threads up to this one."""
        lane, size, zero = self.special("subgroup_lane"), self.special("subgroup_size"), None
        zero = self.number(0)
        step = 1
        while step < MOST_THREADS:
            by = self.number(step)
            before = self.shuffle(value, self.node("MAX", self.node("SUB", lane, by), zero))
            # Where the size is known, a step that it does not need goes with its SHUFFLE.
            takes = self.node("AND", self.node("LT", by, size), self.node("GE", lane, by))
            value = self.node("WHERE", takes, self.node(combine, before, value), value)
            step *= 2
        return value

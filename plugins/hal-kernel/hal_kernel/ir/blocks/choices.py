"""Write an IF that only sets numbers as a choice between them.

    lo = j - r
    if lo < 0:                              lo = max(j - r, 0)
        lo = 0                       ->     m = hal.int32(3 * size) if size > 1 else 3
    m = 3
    if size > 1:
        m = hal.int32(3 * size)

Numbers are what parameters, constants, indices and counters are made of. On the right all threads
of a row share `m`, so that it may be the bound of a loop in lockstep, and clamps are decided for
the middle of a row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hal_core.dtypes import int32, int64, uint32, uint64
from hal_kernel.ir.blocks.hoisting import is_common
from hal_kernel.ir.uop import COMPARISON, PURE, UOp

_NUMBERS = {int32, int64, uint32, uint64}
_CHEAP = COMPARISON | {
    "CONST", "ADD", "SUB", "MUL", "NEG", "ABS", "MIN", "MAX", "WHERE", "CAST", "AND", "OR", "XOR",
    "NOT", "SHL", "SHR", "FLOOR", "CEIL", "TRUNC",
}  # fmt: skip
_MOST = 16  # nodes that are computed also where the condition does not hold


def is_number(node: UOp, numbers: Collection[UOp]) -> bool:
    """Tell whether a node is made of parameters, constants, indices and counters alone."""
    if node.op in PURE:
        return all(source in numbers for source in node.src)
    return node.op in ("SPECIAL", "RANGE") or is_common(node)


def choices(
    block: list[UOp], sides: Collection[Mapping[UOp, UOp]], numbers: Collection[UOp]
) -> list[UOp] | None:
    """Return the nodes of an IF up to its end as choices; None if it does more than set numbers.

    `sides` are the known values of variables at the end of the IF, and of its ELSE.
    """
    condition = block[0].src[0]
    kept = [node for node in block[1:] if node.op not in ("VAR", "SET", "ELSE")]
    if condition not in numbers or len(kept) > _MOST or any(n.op not in _CHEAP for n in kept):
        return None
    sets = {node.src[0] for node in block if node.op == "SET"}.difference(block)
    if len(sets) != 1:  # a swap of two numbers is a branch
        return None
    (variable,) = sets
    values = [known[variable] for known in sides if known.get(variable) in numbers]
    if len(values) != 2 or variable.dtype not in _NUMBERS:
        return None
    value = _choice(condition, *values)
    return [*kept, value, UOp("SET", None, (variable, value), None, block[0].line)]


def _choice(condition: UOp, then: UOp, otherwise: UOp) -> UOp:
    """Return a choice, as the greater or the smaller number where it is that."""
    if condition.op in ("LT", "LE", "GT", "GE"):
        small, large = condition.src if condition.op in ("LT", "LE") else condition.src[::-1]
        for op, a, b in (("MAX", small, large), ("MIN", large, small)):
            if equal(a, otherwise) and equal(b, then):
                return UOp(op, then.dtype, (otherwise, then), None, condition.line)
    return UOp("WHERE", then.dtype, (condition, then, otherwise), None, condition.line)


def equal(a: UOp, b: UOp, depth: int = 8) -> bool:
    """Tell whether two numbers are computed alike, in few steps."""
    if a is b:
        return True
    same = (a.op, a.dtype, repr(a.arg)) == (b.op, b.dtype, repr(b.arg)) and depth > 0
    same = same and (a.op == "CONST" or (a.op in PURE and len(a.src) == len(b.src)))
    return same and all(equal(*pair, depth - 1) for pair in zip(a.src, b.src, strict=True))

"""Lower `hal.load(p, i, 4)` and `hal.store(p, i, a, b, c, d)`: elements beside each other."""

from __future__ import annotations

import ast

from hal_core.dtypes import STORAGE_DTYPES, float32
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import VECTORS, dtype_of
from hal_kernel.lang import memory, shapes
from hal_kernel.lang.constants import computed
from hal_kernel.lang.emit import Memory, Nothing
from hal_kernel.lang.expressions import Expressions

_LOAD = "Write a, b, c, d = hal.load(p, i, 4), with 2, 4, 8 or 16."
_STORE = "Write hal.store(p, i, a, b, c, d), with 2, 4, 8 or 16 values."
_DEPTH = 6  # nested operations of an index that are looked into


def load(x: Expressions, node: ast.Call) -> tuple[UOp, ...]:
    """Lower `hal.load(p, i, n)` to the values of n elements."""
    if len(node.args) != 3:
        raise x.error(node, f"load takes 3 arguments, not {len(node.args)}", _LOAD)
    label, index, number = node.args
    count = x.expression(number)
    if type(count) is not int or count not in VECTORS:
        written = ast.unparse(number)
        raise x.error(number, f"{written} is not the number of elements of a vector", _LOAD)
    array, place = _place(x, node, label, index, count, stored=False)
    dtype = dtype_of(array.node)
    sources = (array.node, place)
    values = [x.emit.node("LOAD", dtype, sources, (lane, count)) for lane in range(count)]
    if dtype in STORAGE_DTYPES:  # they exist in memory only
        values = [x.emit.node("CAST", float32, (value,)) for value in values]
    return tuple(values)


def store(x: Expressions, node: ast.Call) -> Nothing:
    """Lower `hal.store(p, i, a, b)`, which gives no value."""
    label, index, *parts = [*node.args, node, node][: max(2, len(node.args))]
    if len(parts) not in VECTORS:
        raise x.error(node, f"store takes p, i and values, not {len(node.args)} arguments", _STORE)
    array, place = _place(x, node, label, index, len(parts), stored=True)
    dtype = dtype_of(array.node)
    held = computed(dtype)
    values = [x.typed(part, x.value(part, held), held) for part in parts]
    x.emit.line = x.text.mark(node)
    if dtype in STORAGE_DTYPES:
        values = [x.emit.node("CAST", dtype, (value,)) for value in values]
    for lane, value in enumerate(values):
        x.emit.node("STORE", None, (array.node, place, value), (lane, len(values)))
    return Nothing("hal.store(...)")


def _place(
    x: Expressions, node: ast.Call, label: ast.expr, index: ast.expr, count: int, *, stored: bool
) -> tuple[Memory, UOp]:
    """Return the memory of a vector, and the index of its first element."""
    array = memory.named(x, node, x.expression(label), label, stored=stored)
    if array.node.op in ("LOCAL", "TABLE"):
        what = "local array" if array.node.op == "LOCAL" else "constant table"
        problem = f"{array.name!r} is a {what}, which has no vectors"
        raise x.error(label, problem, f"Index its elements: {array.name}[i].")
    place = shapes.flat(x, node, array, index, count)
    rest = _rest(place, count, _DEPTH)
    if rest:
        problem = f"the index {ast.unparse(index)} is {rest} more than a multiple of {count}"
        fix = f"Begin at a multiple of {count}; or access each element by itself, p[i]."
        raise x.error(index, problem, fix)
    return array, place


def _rest(index: UOp, count: int, depth: int) -> int | None:
    """Return the rest of an index divided by a power of two; None if it is not known."""
    if index.op == "CONST":
        return int(index.arg % count)
    if not depth or index.op not in ("ADD", "SUB", "MUL", "SHL", "CAST"):
        return None
    first, second = [_rest(part, count, depth - 1) for part in (*index.src, *index.src)[:2]]
    if index.op == "MUL" and 0 in (first, second):
        return 0
    if index.op == "SHL":
        by = index.src[1]
        return 0 if by.op == "CONST" and 1 << min(by.arg, 4) >= count else None
    if first is None or second is None:
        return None
    values = {"ADD": first + second, "SUB": first - second, "MUL": first * second, "CAST": first}
    return values[index.op] % count

"""Lower shapes: indices, `hal.view` and `p[k:]`, which are arithmetic with the index of an element.

    u = hal.view(p, (h, w))             u: p, of the shape (h, w)
    row = p[y * w:]                     row: p, from element y * w on
    u[y, x] = row[x]            ->      p[y * w + x] = p[x + y * w]

What is not known at compile time is left to checked mode, as ASSERTs of the indices.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from hal_core.dtypes import DType, bool_, int32, int64
from hal_core.errors import shown
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import dtype_of
from hal_kernel.lang import refusals
from hal_kernel.lang.constants import default_dtype
from hal_kernel.lang.emit import Memory
from hal_kernel.lang.expressions import Expressions

VIEW = "Write u = hal.view(p, (height, width))."
_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "ADD": operator.add, "SUB": operator.sub, "MUL": operator.mul,
}  # fmt: skip
Extent = UOp | int  # an int where it is known at compile time


def flat(
    x: Expressions, at: ast.expr, memory: Memory, index: ast.expr, count: int = 1,
    gate: UOp | bool = True,
) -> UOp:  # fmt: skip
    """Return the index of an element counted row after row: `a[i, j]` is `i * width + j`.

    The `count` elements from there on are within the bounds, where `gate` holds.
    """
    # `p[i]`, the most frequent case, needs none of the checks below.
    if memory.shape is None and memory.offset is None and not isinstance(index, ast.Tuple):
        value = _one_index(x, index)
        _check_bounds(x, at, memory, 0, value)
        return x.typed(at, value, default_dtype(value)) if isinstance(value, int) else value
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    if memory.shape is None and len(parts) != 1:
        fix = f"Write {memory.name}[row * width + column], or hal.view(...) to give it a shape."
        raise x.error(at, "an index must be one number", fix)
    if memory.shape is not None and len(parts) != len(memory.shape):
        names = ", ".join("ijkl"[: len(memory.shape)])
        several = ("one index", "both indices", "three indices", "four indices")
        shape = f"{memory.name!r} has the shape {spelt(memory.shape)}"
        problem = f"{shape}, and takes {several[len(memory.shape) - 1]}, not {len(parts)}"
        raise x.error(at, problem, f"Write {memory.name}[{names}].")
    values = [_one_index(x, part) for part in parts]
    for position, (part, value) in enumerate(zip(parts, values, strict=True)):
        _check_bounds(x, part if memory.shape else at, memory, position, value)
    # Bare numbers take the dtype of the typed indices, which must have one dtype.
    known = [value for value in (*values, memory.offset) if isinstance(value, UOp)]
    known += [extent for extent in memory.shape or () if isinstance(extent, UOp)]
    if known:
        x.unify(at, "the index", [*known])
    if gate is not False and (memory.offset is not None or len(parts) > 1):

        def test() -> None:
            for position, value in enumerate(values):
                _test_bounds(x, at, memory, position, value)

        tests = x.emit.capture(test)[1]
        if tests and isinstance(gate, UOp):
            x.emit.branch(gate, tests, [])
        else:
            x.emit.uops += tests
    if count > 1 and memory.shape is not None:
        last = _computed(x, at, "ADD", values[-1], count - 1)
        _check_bounds(x, at, memory, len(parts) - 1, last)
        _test_bounds(x, at, memory, len(parts) - 1, last)
    flat: Extent = values[0]
    for extent, value in zip((memory.shape or ())[1:], values[1:], strict=True):
        flat = _computed(x, at, "ADD", _computed(x, at, "MUL", flat, extent), value)
    flat = _computed(x, at, "ADD", flat, memory.offset or 0)
    return flat if isinstance(flat, UOp) else x.typed(at, flat, default_dtype(flat))


def row(x: Expressions, at: ast.expr, memory: Memory, index: ast.expr) -> Memory:
    """Return a row of a table, `W[j]`, which is indexed in its turn."""
    value, shape = _one_index(x, index), memory.shape or ()
    _check_bounds(x, index, memory, 0, value)
    _test_bounds(x, at, memory, 0, value)
    first = _computed(x, at, "MUL", value, _count(x, at, shape[1:]))
    offset = _computed(x, at, "ADD", first, memory.offset or 0)
    return Memory(memory.name, memory.node, memory.const, shape[1:], offset, memory.origin)


def _computed(x: Expressions, at: ast.AST, op: str, a: Extent, b: Extent) -> Extent:
    """Return a sum, difference or product, at compile time as far as it is known."""
    if isinstance(a, int) and isinstance(b, int):
        return _NUMBERS[op](a, b)
    neutral = int(op == "MUL")  # the shape (n, 1) needs no MUL by 1, a start at 0 no ADD
    if b == neutral:
        return a
    if a == neutral and op != "SUB":
        return b
    if op == "MUL" and 0 in (a, b):
        return 0
    first, second = x.unify(at, "the index", [a, b])
    return x.emit.node(op, first.dtype, (first, second))


def _test_bounds(x: Expressions, at: ast.AST, memory: Memory, position: int, value: Extent) -> None:
    """Leave an index that is not known at compile time to checked mode."""
    extent = memory.shape[position] if memory.shape else None
    label = f"of {memory.name!r}"
    if memory.shape is not None and len(memory.shape) > 1:
        label = f"along axis {position} of {memory.name!r}"
    if isinstance(value, UOp):
        _assert_within(x, at, value, extent, label)
    elif isinstance(extent, UOp):
        _assert_within(x, at, x.typed(at, value, dtype_of(extent)), extent, label)


def _assert_within(
    x: Expressions, at: ast.AST, index: UOp, extent: Extent | None, label: str
) -> None:
    """Emit the test of checked mode that an index is neither negative nor beyond an extent."""
    bounds: tuple[UOp, ...] = ()
    if isinstance(extent, UOp) or (extent is not None and extent <= dtype_of(index).max):
        bounds = (x.typed(at, extent, dtype_of(index)),)
    x.emit.node("ASSERT", None, (index, *bounds), label)


def _one_index(x: Expressions, node: ast.expr) -> Extent:
    value = x.operand(node, x.expression(node))
    dtype_or_type = value.dtype if isinstance(value, UOp) else type(value).__name__
    if dtype_or_type not in (int32, int64, "int"):
        problem = f"an index must be int32 or int64, not {dtype_or_type}"
        raise x.error(node, problem, f"Cast it: {refusals.index_dtype(dtype_or_type)}(...).")
    return value if isinstance(value, UOp) else int(value)


def _check_bounds(
    x: Expressions, at: ast.AST, memory: Memory, position: int, value: Extent
) -> None:
    if isinstance(value, UOp):
        return
    if value < 0:
        raise x.error(at, f"the index {shown(value)} is negative", "Count from the start.")
    extent = memory.shape[position] if memory.shape else None
    if not isinstance(extent, int):
        if value > int64.max:
            raise x.error(at, f"the index {shown(value)} is no int64", "Correct it.")
    elif value >= extent:
        shape = spelt(memory.shape or ())
        problem = f"the index {shown(value)} is outside of {memory.name!r}, of shape {shape}"
        raise x.error(at, problem, f"The last index is {extent - 1}.")


def spelt(shape: tuple[Extent, ...]) -> str:
    """Return a shape as text; an extent that is known at run time only is a question mark."""
    sizes = ["?" if isinstance(extent, UOp) else str(extent) for extent in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def shape_of(x: Expressions, node: ast.expr, fix: str) -> tuple[Extent, ...]:
    """Return a shape; extents that are not known at compile time are int32 or int64."""
    if isinstance(node, ast.List):
        written = ast.unparse(ast.Tuple(node.elts, ast.Load()))
        raise x.error(node, "a shape is a tuple, not a list", f"Write {written}.")
    parts = [x.expression(part) for part in node.elts] if isinstance(node, ast.Tuple) else None
    given = x.expression(node) if parts is None else tuple(parts)
    shape: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    found = [size for size in shape if isinstance(size, UOp)]
    numbers = [size for size in shape if not isinstance(size, UOp)]
    if not 1 <= len(shape) <= 4 or not all(type(size) is int and size > 0 for size in numbers):
        raise x.error(node, "a shape must be one to four positive ints", fix)
    for size in found:
        if size.dtype not in (int32, int64):
            problem = f"the extents of a shape must be int32 or int64, not {size.dtype}"
            raise x.error(node, problem, f"Cast it: {refusals.index_dtype(size.dtype)}(...).")
    if found:
        x.unify(node, "the shape", [*found])
    return shape


def view(x: Expressions, second: ast.expr, memory: Memory) -> Memory:
    """Return the same memory with the shape `second`, row after row."""
    shape = shape_of(x, second, VIEW)
    needed, there = _count(x, second, shape), None
    if memory.shape is not None:
        there = _count(x, second, memory.shape)
        if isinstance(needed, int) and isinstance(there, int):
            if needed > there:
                problem = f"the shape has {shown(needed)} elements, and {memory.name!r} {there}"
                raise x.error(second, problem, "Make it smaller.")
        else:
            first, last = x.unify(second, "the shape", [needed, there])
            fits = x.emit.node("LE", bool_, (first, last))
            written = ast.unparse(second)
            message = f"the shape {written} has more elements than {memory.name!r}"
            x.emit.node("ASSERT", None, (fits,), message)
    return Memory(memory.name, memory.node, memory.const, shape, memory.offset or 0, memory.origin)


def _count(x: Expressions, at: ast.AST, shape: tuple[Extent, ...]) -> Extent:
    """Return the number of elements of a shape."""
    count: Extent = 1
    for extent in shape:
        count = _computed(x, at, "MUL", count, extent)
    return count


def flattened(x: Expressions, at: ast.AST, name: str, memory: Memory, const: bool) -> Memory:
    """Return memory as a function's parameter sees it: with one index, row after row."""
    shape = None if memory.shape is None else (_count(x, at, memory.shape),)
    return Memory(name, memory.node, const, shape, memory.offset)


def cut(x: Expressions, node: ast.Subscript, part: ast.Slice, memory: Memory) -> Memory:
    """Lower `p[k:]`: the same memory, from element k on."""
    label = ast.unparse(node.value)
    if part.lower is None or part.upper is not None or part.step is not None:
        rest = f"{label}[{ast.unparse(part.lower) if part.lower else 0}:]"
        fix = f"Index one element, {label}[i]; or write {rest}, which ends where {label} ends, or "
        fix += f"hal.view({rest}, n) for n elements."
        raise x.error(part, "a slice of memory has a start, and no end and no step", fix)
    if memory.shape is not None and len(memory.shape) > 1:
        problem = f"{memory.name!r} has the shape {spelt(memory.shape)}, and no single start"
        fix = f"Write hal.view({label}, size)[start:], which counts row after row."
        raise x.error(node, problem, fix)
    start, extent = _one_index(x, part.lower), memory.shape[0] if memory.shape else None
    # One past the end is a part without an element.
    within = isinstance(start, UOp) or 0 <= start <= (extent if isinstance(extent, int) else start)
    if not within:
        problem = f"the start {shown(start)} is outside of {memory.name!r}"
        raise x.error(part.lower, problem, "Count from the start.")
    known = [value for value in (start, extent, memory.offset) if isinstance(value, UOp)]
    if known:
        x.unify(node, "the start", [*known])
    if isinstance(start, UOp) or isinstance(extent, UOp):
        typed = x.typed(node, start, dtype_of(known[0]))
        most = None if extent is None else _computed(x, node, "ADD", extent, 1)
        _assert_within(x, node, typed, most, f"{ast.unparse(part.lower)} that {label} is cut at")
    shape = None if extent is None else (_computed(x, node, "SUB", extent, start),)
    offset = _computed(x, node, "ADD", start, memory.offset or 0)
    return Memory(memory.name, memory.node, memory.const, shape, offset, memory.origin)


def rescaled(x: Expressions, node: ast.Call, memory: Memory, dtype: DType) -> Extent | None:
    """Return where memory begins, counted in elements of another dtype."""
    old, new = dtype_of(memory.node).itemsize, dtype.itemsize
    if not memory.offset or old == new:
        return memory.offset
    if isinstance(memory.offset, int):
        if memory.offset * old % new == 0:
            return memory.offset * old // new
    elif old > new:
        return _computed(x, node, "MUL", memory.offset, old // new)
    label = ast.unparse(node.args[1])
    problem = f"{label} may begin within an element of {dtype}"
    fix = f"Cut what hal.bitcast gives: hal.bitcast(hal.{dtype.__name__}, p)[k:]."
    raise x.error(node, problem, fix)

"""Elements of device and shared memory: where one is, reading it, writing it."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Any

from hal_core.dtypes import STORAGE_DTYPES, DType, float32, int32, int64
from hal_core.ir import UOp
from hal_core.lang.constants import Number, computed, default_dtype
from hal_core.lang.emit import Memory, dtype_of

if TYPE_CHECKING:
    from hal_core.lang.expressions import Expressions

_SHARED = "Write tile = hal.shared(hal.float32, (16, 16))."
_MOST_ELEMENTS = 2**31 - 1  # of a shared array: the index is an int32


def place(
    x: Expressions, at: ast.expr, owner: object, label: ast.expr, index: ast.expr, *, stored: bool
) -> tuple[Memory, UOp]:
    """The memory that `label` stands for, and the flat index node of its element `index`."""
    if not isinstance(owner, Memory):
        raise x.error(at, *_no_elements(x, label, owner, stored))
    if stored and owner.const:
        dtype = dtype_of(owner.node).__name__
        fix = f"Declare it {owner.name}: hal.Ptr[hal.{dtype}]."
        raise x.error(at, f"{owner.name!r} is only read", fix)
    return owner, _flat(x, at, owner, index)


def _no_elements(x: Expressions, node: ast.expr, owner: object, stored: bool) -> tuple[str, str]:
    """What is wrong with `owner[...]`, and what to write."""
    label = ast.unparse(node)
    if isinstance(owner, tuple):
        return f"the captured tuple {label} is only read", "Store into a hal.Ptr parameter."
    if isinstance(owner, list):
        return f"the list {label} can change, and is no constant", f"Make {label} a tuple."
    fix = "Index a parameter x: hal.Ptr[hal.float32]."
    if label in x.names.parameters and isinstance(owner, UOp):
        dtype = dtype_of(owner).__name__
        fix = f"Declare it {label}: hal.{'Ptr' if stored else 'ConstPtr'}[hal.{dtype}]."
    return "only pointers and shared arrays have elements", fix


def _flat(x: Expressions, at: ast.expr, memory: Memory, index: ast.expr) -> UOp:
    """Row after row, whatever the shape."""
    if memory.shape is None and not isinstance(index, ast.Tuple):
        value = _one_index(x, index)
        _check_bounds(x, at, memory, 0, value)
        return x.typed(at, value, default_dtype(value)) if isinstance(value, int) else value
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    _check_count(x, at, memory, len(parts))
    values = [_one_index(x, part) for part in parts]
    for position, (part, value) in enumerate(zip(parts, values, strict=True)):
        _check_bounds(x, part if memory.shape else at, memory, position, value)
    known = [value for value in values if isinstance(value, UOp)]
    if known:
        x.unify(at, "the index", [*known])
    flat: UOp | Number = values[0]
    for extent, value in zip((memory.shape or ())[1:], values[1:], strict=True):
        flat = _step(x, at, flat, extent, value)
    return flat if isinstance(flat, UOp) else x.typed(at, flat, default_dtype(flat))


def _step(
    x: Expressions, at: ast.AST, row: UOp | Number, extent: int, column: UOp | Number
) -> UOp | Number:
    """row * extent + column"""
    if isinstance(row, UOp):
        if extent > 1:
            row = x.emit.node("MUL", row.dtype, (row, x.typed(at, extent, dtype_of(row))))
    else:
        row *= extent
        if not isinstance(column, UOp):
            return row + column
    if 0 in (row, column):
        return column if row == 0 else row
    first, second = x.unify(at, "the index", [row, column])
    return x.emit.node("ADD", first.dtype, (first, second))


def _check_count(x: Expressions, at: ast.AST, memory: Memory, count: int) -> None:
    wanted = len(memory.shape or (0,))
    if count == wanted:
        return
    if memory.shape is None:
        raise x.error(at, "an index is one number", f"Write {memory.name}[row * width + column].")
    names = ", ".join("ijk"[:wanted])
    several = ("one index", "both indices", "three indices")[wanted - 1]
    problem = f"{memory.name!r} has the shape {memory.shape}, and takes {several}, not {count}"
    raise x.error(at, problem, f"Write {memory.name}[{names}].")


def _one_index(x: Expressions, node: ast.expr) -> UOp | int:
    value = x.operand(node, x.expression(node))
    dtype_or_type = value.dtype if isinstance(value, UOp) else type(value).__name__
    if dtype_or_type not in (int32, int64, "int"):
        problem = f"an index is int32 or int64, not {dtype_or_type}"
        raise x.error(node, problem, "Cast it: hal.int32(...).")
    return value if isinstance(value, UOp) else int(value)


def _check_bounds(
    x: Expressions, at: ast.AST, memory: Memory, position: int, value: UOp | int
) -> None:
    if isinstance(value, UOp):
        return
    if value < 0:
        raise x.error(at, f"the index {value} is negative", "Count from the start.")
    if memory.shape is None:
        if value > int64.max:
            raise x.error(at, f"the index {value} is no int64", "Correct it.")
    elif value >= memory.shape[position]:
        problem = f"the index {value} is outside of {memory.name!r}, of shape {memory.shape}"
        raise x.error(at, problem, f"The last one is {memory.shape[position] - 1}.")


def load(x: Expressions, memory: Memory, index: UOp) -> UOp:
    dtype = dtype_of(memory.node)
    value = x.emit.node("LOAD", dtype, (memory.node, index))
    return x.emit.node("CAST", float32, (value,)) if dtype in STORAGE_DTYPES else value


def store(x: Expressions, at: ast.AST, memory: Memory, index: UOp, value: UOp | Number) -> None:
    dtype = dtype_of(memory.node)
    typed = x.typed(at, value, computed(dtype))
    if dtype in STORAGE_DTYPES:
        typed = x.emit.node("CAST", dtype, (typed,))
    x.emit.node("STORE", None, (memory.node, index, typed))


def shared(x: Expressions, node: ast.Call, name: str) -> Memory:
    """The array of `name = hal.shared(dtype, shape)`."""
    if len(node.args) != 2 or node.keywords:
        raise x.error(node, "hal.shared takes a dtype and a shape, by position", _SHARED)
    if isinstance(node.args[1], (ast.Name, ast.Attribute)):
        _check_order(x, name, *node.args)
    dtype = x.expression(node.args[0])
    if not isinstance(dtype, DType) or not dtype.itemsize:
        problem = f"{ast.unparse(node.args[0])} is not the dtype of an array"
        raise x.error(node.args[0], problem, _SHARED)
    shape = _shape(x, node.args[1])
    count = math.prod(shape)
    if count > _MOST_ELEMENTS:
        problem = f"the array has {count} elements, of {_MOST_ELEMENTS} at most"
        raise x.error(node.args[1], problem, "Make it smaller.")
    return Memory(name, x.emit.node("SHARED", dtype, (), (name, count)), shape=shape)


def _check_order(x: Expressions, name: str, first: ast.expr, second: ast.expr) -> None:
    if isinstance(x.expression(second), DType):
        shape = ast.unparse(first)
        fix = f"Write {name} = hal.shared({ast.unparse(second)}, {shape})."
        raise x.error(first, f"{shape} is not the dtype of an array: the dtype comes first", fix)


def _shape(x: Expressions, node: ast.expr) -> tuple[int, ...]:
    if isinstance(node, ast.Tuple):
        given: Any = tuple(x.expression(part) for part in node.elts)
    else:
        given = x.expression(node)
    sizes = given if isinstance(given, tuple) else (given,)
    if any(isinstance(size, UOp) for size in sizes):
        fix = "Capture its size as a Python number from outside of the kernel."
        raise x.error(node, "the shape of an array is known at compile time", fix)
    if not 1 <= len(sizes) <= 3 or not all(type(size) is int and size > 0 for size in sizes):
        raise x.error(node, "the shape of an array is one to three positive ints", _SHARED)
    return sizes

"""Lower elements of device and shared memory: their index, loads, stores, `hal.shared`."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Any

from hal_core.dtypes import DTYPES, STORAGE_DTYPES, DType, any_, float32, int32, int64
from hal_core.errors import shown
from hal_core.ir import UOp
from hal_core.lang.constants import Number, computed, default_dtype
from hal_core.lang.emit import Memory, dtype_of

if TYPE_CHECKING:
    from hal_core.lang.expressions import Expressions

_SHARED = "Write tile = hal.shared(hal.float32, (16, 16))."
_MOST_ELEMENTS = 2**31 - 1  # of a shared array: the index is an int32


def named(x: Expressions, at: ast.expr, owner: object, label: ast.expr, *, stored: bool) -> Memory:
    """Return the memory that `label`, lowered to `owner`, stands for; `stored` if it is written."""
    if not isinstance(owner, Memory):
        name = ast.unparse(label)
        problem = "only pointers and shared arrays have elements"
        fix = "Index a parameter x: hal.Ptr[hal.float32]."
        if isinstance(owner, tuple):
            problem = f"the captured tuple {name} is only read"
            fix = "Store into a hal.Ptr parameter."
        elif isinstance(owner, list):
            problem = f"the list {name} can change, and is no constant"
            fix = f"Make {name} a tuple."
        elif name in x.names.parameters and isinstance(owner, UOp):
            dtype = dtype_of(owner).__name__
            fix = f"Declare it {name}: hal.{'Ptr' if stored else 'ConstPtr'}[hal.{dtype}]."
        raise x.error(at, problem, fix)
    if owner.node.dtype is any_:
        written = ast.unparse(label)
        fix = f"Say what it holds: hal.bitcast(hal.float32, {written})."
        raise x.error(at, f"the memory of {written!r} has no dtype", fix)
    if stored and owner.const:
        dtype = dtype_of(owner.node).__name__
        fix = f"Declare it {owner.name}: hal.Ptr[hal.{dtype}]."
        raise x.error(at, f"{owner.name!r} is only read", fix)
    return owner


def flat(x: Expressions, at: ast.expr, memory: Memory, index: ast.expr) -> UOp:
    """Return the index of an element counted row after row: `a[i, j]` is `i * width + j`."""
    # `p[i]`, the most frequent case, needs none of the checks below.
    if memory.shape is None and not isinstance(index, ast.Tuple):
        value = _one_index(x, index)
        _check_bounds(x, at, memory, 0, value)
        return x.typed(at, value, default_dtype(value)) if isinstance(value, int) else value
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    if memory.shape is None and len(parts) != 1:
        raise x.error(
            at, "an index must be one number", f"Write {memory.name}[row * width + column]."
        )
    if memory.shape is not None and len(parts) != len(memory.shape):
        names = ", ".join("ijk"[: len(memory.shape)])
        several = ("one index", "both indices", "three indices")[len(memory.shape) - 1]
        shape = f"{memory.name!r} has the shape {memory.shape}"
        problem = f"{shape}, and takes {several}, not {len(parts)}"
        raise x.error(at, problem, f"Write {memory.name}[{names}].")
    values = [_one_index(x, part) for part in parts]
    for position, (part, value) in enumerate(zip(parts, values, strict=True)):
        _check_bounds(x, part if memory.shape else at, memory, position, value)
    # Bare numbers take the dtype of the typed indices, which must have one dtype.
    known = [value for value in values if isinstance(value, UOp)]
    if known:
        x.unify(at, "the index", [*known])
    flat: UOp | Number = values[0]
    for extent, value in zip((memory.shape or ())[1:], values[1:], strict=True):
        flat = _multiply_add(x, at, flat, extent, value)
    return flat if isinstance(flat, UOp) else x.typed(at, flat, default_dtype(flat))


def _multiply_add(
    x: Expressions, at: ast.AST, row: UOp | Number, extent: int, column: UOp | Number
) -> UOp | Number:
    """Return row * extent + column, computed at compile time if both are numbers."""
    if isinstance(row, UOp):
        # The shape (n, 1) needs no MUL by 1; a 0, below, needs no ADD.
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


def _one_index(x: Expressions, node: ast.expr) -> UOp | int:
    value = x.operand(node, x.expression(node))
    dtype_or_type = value.dtype if isinstance(value, UOp) else type(value).__name__
    if dtype_or_type not in (int32, int64, "int"):
        problem = f"an index must be int32 or int64, not {dtype_or_type}"
        raise x.error(node, problem, "Cast it: hal.int32(...).")
    return value if isinstance(value, UOp) else int(value)


def _check_bounds(
    x: Expressions, at: ast.AST, memory: Memory, position: int, value: UOp | int
) -> None:
    if isinstance(value, UOp):
        return
    if value < 0:
        raise x.error(at, f"the index {shown(value)} is negative", "Count from the start.")
    if memory.shape is None:
        if value > int64.max:
            raise x.error(at, f"the index {shown(value)} is no int64", "Correct it.")
    elif value >= memory.shape[position]:
        problem = f"the index {shown(value)} is outside of {memory.name!r}, of shape {memory.shape}"
        raise x.error(at, problem, f"The last index is {memory.shape[position] - 1}.")


def load(x: Expressions, memory: Memory, index: UOp) -> UOp:
    dtype = dtype_of(memory.node)
    # float16 and bfloat16 exist in memory only.
    value = x.emit.node("LOAD", dtype, (memory.node, index))
    return x.emit.node("CAST", float32, (value,)) if dtype in STORAGE_DTYPES else value


def load_if(
    x: Expressions, gate: UOp | bool, memory: Memory, index: UOp, otherwise: ast.expr
) -> UOp:
    """Lower a read of an element where `gate` is true, and the value `otherwise` elsewhere."""
    dtype = dtype_of(memory.node)
    held = computed(dtype)
    value = x.typed(otherwise, x.value(otherwise, held), held)
    if not isinstance(gate, UOp):
        return load(x, memory, index) if gate else value
    if dtype is held:
        return x.emit.node("LOAD", dtype, (memory.node, index, gate, value))
    # As an element the value would be rounded to 16 bits.
    zero = x.emit.node("CAST", dtype, (x.emit.constant(0.0, held),))
    loaded = x.emit.node("LOAD", dtype, (memory.node, index, gate, zero))
    return x.emit.node("WHERE", held, (gate, x.emit.node("CAST", held, (loaded,)), value))


def store(x: Expressions, at: ast.AST, memory: Memory, index: UOp, value: UOp | Number) -> None:
    dtype = dtype_of(memory.node)
    typed = x.typed(at, value, computed(dtype))
    if dtype in STORAGE_DTYPES:
        typed = x.emit.node("CAST", dtype, (typed,))
    x.emit.node("STORE", None, (memory.node, index, typed))


def shared(x: Expressions, node: ast.Call, name: str) -> Memory:
    """Lower `name = hal.shared(dtype, shape)` and return the array."""
    if len(node.args) != 2 or node.keywords:
        raise x.error(node, "hal.shared takes a dtype and a shape, by position", _SHARED)
    first, second = node.args
    is_name = isinstance(second, (ast.Name, ast.Attribute))
    if is_name and isinstance(x.expression(second), DType):
        written = ast.unparse(first)
        fix = f"Write {name} = hal.shared({ast.unparse(second)}, {written})."
        problem = f"{written} is not the dtype of an array: the dtype comes first"
        raise x.error(first, problem, fix)
    dtype = x.expression(first)
    if not isinstance(dtype, DType) or dtype.name not in DTYPES:
        problem = f"{ast.unparse(first)} is not the dtype of an array"
        raise x.error(first, problem, _SHARED)
    parts = [x.expression(part) for part in second.elts] if isinstance(second, ast.Tuple) else None
    given = x.expression(second) if parts is None else tuple(parts)
    shape: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    if any(isinstance(size, UOp) for size in shape):
        fix = "Capture its size as a Python number from outside of the kernel."
        raise x.error(second, "the shape of an array must be known at compile time", fix)
    if not 1 <= len(shape) <= 3 or not all(type(size) is int and size > 0 for size in shape):
        raise x.error(second, "the shape of an array must be one to three positive ints", _SHARED)
    count = math.prod(shape)
    if count > _MOST_ELEMENTS:
        problem = f"the array has {shown(count)} elements, and {_MOST_ELEMENTS} is the limit"
        raise x.error(second, problem, "Make it smaller.")
    return Memory(name, x.emit.declare("SHARED", dtype, (), (name, count)), shape=shape)

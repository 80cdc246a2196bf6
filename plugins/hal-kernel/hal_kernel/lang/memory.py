"""Lower elements of device and shared memory: their index, loads, stores, `hal.shared`."""

from __future__ import annotations

import ast
import math

from hal_core.dtypes import DTYPES, STORAGE_DTYPES, DType, any_, float32
from hal_core.errors import shown
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import LOCAL_LIMIT, dtype_of
from hal_kernel.lang import refusals
from hal_kernel.lang.constants import Number, computed
from hal_kernel.lang.emit import Memory
from hal_kernel.lang.expressions import Expressions
from hal_kernel.lang.shapes import shape_of
from hal_kernel.lang.tables import table

_MOST_ELEMENTS = 2**31 - 1  # of a shared array: the index is an int32


def named(x: Expressions, at: ast.expr, owner: object, label: ast.expr, *, stored: bool) -> Memory:
    """Return the memory that `label`, lowered to `owner`, stands for; `stored` if it is written."""
    if isinstance(owner, tuple) and not stored:
        return table(x, label, owner, ast.unparse(label))
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
        elif isinstance(label, ast.Subscript) and isinstance(owner, UOp):
            memory = ast.unparse(label.value)
            fix = f"Write {memory}[row * width + column], or give it a shape: hal.view(...)."
        elif not isinstance(owner, (UOp, DType)):
            problem = f"{name} is a Python {type(owner).__name__} from outside of the kernel"
            fix = "Pass it as a parameter, x: hal.Ptr[hal.float32], or make it a tuple of numbers."
            fix = f"Use {name} outside of the kernel." if refusals.is_own(owner) else fix
        raise x.error(at, problem, fix)
    if owner.node.dtype is any_:
        written = ast.unparse(label)
        fix = f"Say what it holds: hal.bitcast(hal.float32, {written})."
        raise x.error(at, f"the memory of {written!r} has no dtype", fix)
    if stored and owner.const:
        dtype = dtype_of(owner.node).__name__
        fix = f"Declare it {owner.origin}: hal.Ptr[hal.{dtype}]."
        raise x.error(at, f"{owner.name!r} is only read", fix)
    return owner


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


def array(x: Expressions, node: ast.Call, name: str, kind: str) -> Memory:
    """Lower `name = hal.shared(dtype, shape)` or hal.local, as `kind` says; return the array."""
    function = f"hal.{kind}"
    fix = f"Write {name} = {function}(hal.float32, (16, 16))."
    if len(node.args) != 2 or node.keywords:
        raise x.error(node, f"{function} takes a dtype and a shape, by position", fix)
    first, second = node.args
    is_name = isinstance(second, (ast.Name, ast.Attribute))
    if is_name and isinstance(x.expression(second), DType):
        written = ast.unparse(first)
        fix = f"Write {name} = {function}({ast.unparse(second)}, {written})."
        problem = f"{written} is not the dtype of an array: the dtype comes first"
        raise x.error(first, problem, fix)
    dtype = x.expression(first)
    if not isinstance(dtype, DType) or dtype.name not in DTYPES:
        raise x.error(first, f"{ast.unparse(first)} is not the dtype of an array", fix)
    shape = shape_of(x, second, fix)
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) < len(shape):
        fix = "Capture its size as a Python number from outside of the kernel."
        raise x.error(second, "the shape of an array must be known at compile time", fix)
    count = math.prod(sizes)
    if count > _MOST_ELEMENTS:
        problem = f"the array has {shown(count)} elements, and {_MOST_ELEMENTS} is the limit"
        raise x.error(second, problem, "Make it smaller.")
    if kind == "shared":
        return Memory(name, x.emit.declare("SHARED", dtype, (), (name, count)), shape=shape)
    x.emit.local_nbytes += -(-count * dtype.itemsize // 16) * 16
    if x.emit.local_nbytes > LOCAL_LIMIT:
        problem = f"the local arrays of a thread have {x.emit.local_nbytes} bytes up to here, and "
        fix = "Use a buffer with elements for each thread."
        raise x.error(second, f"{problem}{LOCAL_LIMIT} is the limit", fix)
    return Memory(name, x.emit.node("LOCAL", dtype, (), (name, count)), shape=shape)

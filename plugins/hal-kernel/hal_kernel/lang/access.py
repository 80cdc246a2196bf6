"""Lower names, attributes and subscripts."""

from __future__ import annotations

import ast
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from hal_core.dtypes import DTYPES, DType
from hal_kernel.ir import UOp
from hal_kernel.lang import memory, refusals, shapes
from hal_kernel.lang.builtins import SPECIALS
from hal_kernel.lang.constants import plain
from hal_kernel.lang.expressions import Expressions
from hal_kernel.lang.mathematics import MATH_NAMES
from hal_kernel.lang.tables import of_array


def constant(x: Expressions, node: ast.Constant) -> Any:
    if not isinstance(node.value, (int, float)):
        own = DTYPES.get(str(node.value))
        fix = f"Write hal.{own.__qualname__}." if own else "Kernels hold ints, floats and bools."
        raise x.error(node, f"{node.value!r} is not part of the kernel language", fix)
    return node.value


def name(x: Expressions, node: ast.Name) -> Any:
    label = node.id
    # A VAR is read now: its value at this statement is meant.
    known = x.names.visible.get(label)
    if known is not None:
        return x.emit.get(known) if isinstance(known, UOp) and known.op == "VAR" else known
    if x.names.is_local(label):
        if label in x.names.counters:
            fix = "Keep the counter in another variable that is assigned before the loop."
            raise x.error(node, f"the counter {label!r} has no value outside its loop", fix)
        problem = f"{label!r} is not assigned on every path to here"
        fix = f"Assign {label} before the if or the loop."
        if label == "_":  # takes values of any dtypes, and keeps none
            problem, fix = "'_' cannot be read", "Give the value a name, where it is assigned."
        raise x.error(node, problem, fix)
    try:
        value = x.names.outside(label)
    except KeyError:
        fix = refusals.undefined(label, x.names.near(label))
        raise x.error(node, f"the name {label!r} is not defined", fix) from None
    return _captured(x, node, value)


def _captured(x: Expressions, at: ast.AST, value: Any) -> Any:
    """Return a captured Python object as a compile-time constant. Raises: KernelSyntaxError."""
    if isinstance(value, (FunctionType, ModuleType, DType)):
        return value
    value = plain(value)
    if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        return of_array(x, at, value)
    return value


def attribute(x: Expressions, node: ast.Attribute) -> Any:
    owner = x.expression(node.value)
    if isinstance(owner, ModuleType):
        if hasattr(owner, node.attr):
            return _captured(x, node, getattr(owner, node.attr))
        if owner.__name__.partition(".")[0] == "hal_core":
            problem = f"{ast.unparse(node)} is not part of the kernel language"
            raise x.error(node, problem, refusals.absent(node.attr))
        raise x.error(node, f"{owner.__name__} has no {node.attr!r}", "Correct the name.")
    if isinstance(owner, DType) and node.attr in ("min", "max", "itemsize"):
        return getattr(owner, node.attr)
    # Advice for what other kernel languages write: `threadIdx.x`, `x.sqrt()`, `x.abs()`.
    fix = "Pass sizes as parameters; capture Python objects' numbers outside the kernel."
    if isinstance(owner, FunctionType) and owner in SPECIALS and node.attr in ("x", "y", "z"):
        fix = f"Write hal.{SPECIALS[owner]}({'xyz'.index(node.attr)})."
    elif isinstance(owner, UOp) and node.attr in MATH_NAMES:
        fix = f"Write hal.{node.attr}({ast.unparse(node.value)})."
    elif isinstance(owner, UOp) and node.attr == "astype":
        fix = f"Write hal.float32({ast.unparse(node.value)}), or another dtype."
    elif isinstance(owner, UOp) and node.attr in ("abs", "round"):
        fix = f"Write {node.attr}({ast.unparse(node.value)})."
    problem = f"the attribute .{node.attr} is not part of the kernel language"
    raise x.error(node, problem, fix)


def subscript(x: Expressions, node: ast.Subscript) -> Any:
    """Lower `a[i]`: an element of memory, or of a captured tuple; and `p[k:]`, a part of memory."""
    owner = x.expression(node.value)
    if isinstance(owner, tuple):
        found = _constant_element(x, node, owner)
        if found is not None:
            return found
    array = memory.named(x, node, owner, node.value, stored=False)
    if isinstance(node.slice, ast.Slice):
        return shapes.cut(x, node, node.slice, array)
    indices = len(node.slice.elts) if isinstance(node.slice, ast.Tuple) else 1
    if array.node.op == "TABLE" and indices == 1 and array.shape and len(array.shape) > 1:
        return shapes.row(x, node, array, node.slice)
    return memory.load(x, array, shapes.flat(x, node, array, node.slice))


def _constant_element(x: Expressions, node: ast.Subscript, owner: tuple[Any, ...]) -> Any:
    """Return an element of a captured tuple; None if an index is not known at compile time."""
    found: Any = owner
    for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
        if isinstance(part, ast.Slice):
            return None
        # The nodes of an index that is not constant are made again where the table is read.
        index, _ = x.emit.capture(partial(x.expression, part))
        if not isinstance(index, int) or not isinstance(found, tuple):
            return None
        if not -len(found) <= index < len(found):
            problem = f"the index {index} is outside of a tuple that has {len(found)} elements"
            raise x.error(node, problem, "Correct it.")
        found = found[index]
    return _captured(x, node, found)

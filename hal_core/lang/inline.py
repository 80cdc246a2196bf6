"""Inline calls of functions with `@hal.func`: the body takes the place of the call.

@hal.func                       y[i] = sign(x[i])  ->  value = x[i]
def sign(x):                                           if value < 0: choice = -1
    if x < 0:                                          else: choice = 1
        return -1                                      y[i] = choice
    return 1
"""

from __future__ import annotations

import ast
import math
import os
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.dtypes import DType
from hal_core.ir import UOp
from hal_core.lang.control import leaves
from hal_core.lang.emit import Memory, Nothing, dtype_of
from hal_core.lang.func import InlineFunction
from hal_core.lang.names import Names
from hal_core.lang.operators import join
from hal_core.lang.pointers import PointerType
from hal_core.lang.statements import Statements

if TYPE_CHECKING:
    from hal_core.lang.expressions import Expressions


class _Result(NamedTuple):
    """The value of one path through the body, and the place in the text that returns it."""

    value: Any
    at: ast.AST


def inline(x: Expressions, node: ast.Call, function: InlineFunction) -> Any:
    """Lower a call; its value is a node, a compile-time constant, or Nothing."""
    emit, name = x.emit, function.__name__
    if function in emit.calls:
        raise x.error(node, f"{name} calls itself", "Write it as a loop.")
    x.check_size(node)
    if len(node.args) != len(function.parameters):
        names = ", ".join(parameter for parameter, _ in function.parameters)
        problem = f"{name} takes {len(function.parameters)} argument(s), not {len(node.args)}"
        raise x.error(node, problem, f"Write {name}({names}).")
    given = [
        _bound(x, argument, name, parameter, annotation)
        for argument, (parameter, annotation) in zip(node.args, function.parameters, strict=True)
    ]
    # Errors in the body name the call, and nodes get a line number of the kernel's file.
    text, caller, line = function.text(), x.text, x.text.line(node)
    where, mark = "", 0
    if text.filename != caller.filename:
        where, mark = f" of {os.path.basename(caller.filename)}", caller.at or line
    elif caller.at:
        mark = caller.at
    called = f"in {name}, called in line {line}{where}"
    within = f"{called}, {caller.within}" if caller.within else called
    text = text.within_call(caller.kernel, within, mark)
    body = Statements(text, Names(function.__wrapped__, text.tree), emit, function)
    # A parameter is the argument itself, and a variable only if the body assigns it.
    emit.calls.append(function)  # so that a call of itself in the body is refused
    for argument, (parameter, _), value in zip(node.args, function.parameters, given, strict=True):
        body.names.visible[parameter] = value
        if parameter in body.names.assignments:
            body.set_variable(argument, parameter, x.settled(argument, value, None))
    result = _tail(body, body.statements(), text.tree)
    emit.calls.pop()
    emit.line = x.text.mark(node)
    return result.value


def _bound(
    x: Expressions,
    argument: ast.expr,
    function: str,
    name: str,
    annotation: DType | PointerType | None,
) -> Any:
    """Return the value that a parameter has for one call."""
    want = annotation if isinstance(annotation, DType) else None
    value = x.expression(argument, want)
    if want is not None:
        return x.typed(argument, x.operand(argument, value), want)
    if isinstance(value, Nothing):
        x.operand(argument, value)  # raises: it is no value
    if isinstance(annotation, PointerType):
        dtype = annotation.dtype.__name__
        declared = f"{name}: hal.{'ConstPtr' if annotation.const else 'Ptr'}[hal.{dtype}]"
        if not isinstance(value, Memory):
            problem = f"{function} takes a pointer, {declared}, not {ast.unparse(argument)}"
            fix = "Pass a hal.Ptr parameter or a shared array, without an index."
            raise x.error(argument, problem, fix)
        found = dtype_of(value.node)
        if found is not annotation.dtype:
            fix = f"Leave out the annotation of {name}: it then takes every dtype."
            raise x.error(argument, f"{function} takes {declared}, not one of {found}", fix)
        if value.const and not annotation.const:
            fix = f"Declare {name}: hal.ConstPtr[hal.{dtype}], or "
            fix += f"{value.name}: hal.Ptr[hal.{dtype}]."
            problem = f"{function} writes {name}, and {value.name!r} is only read"
            raise x.error(argument, problem, fix)
        # A pointer takes one index, so a shared array becomes one-dimensional, row after row.
        flat = None if value.shape is None else (math.prod(value.shape),)
        return Memory(name, value.node, annotation.const or value.const, flat)
    if isinstance(value, Memory):
        return Memory(name, value.node, value.const, value.shape)
    return value


# -- returns: a path ends with a return, so the statements after an if belong to the other side


def _tail(s: Statements, body: list[ast.stmt], at: ast.AST) -> _Result:
    """Lower the statements of a path up to its return, and return its value."""
    for position, node in enumerate(body):
        rest = body[position + 1 :]
        if isinstance(node, ast.Return):
            _check_rest(s, rest)
            return _returned(s, node)
        if isinstance(node, ast.If) and _returns(node):
            return _branch(s, node, rest)
        s.block([node])
    return _ended(s, at)


def _branch(s: Statements, node: ast.If, rest: list[ast.stmt]) -> _Result:
    """Lower an if that returns on some path, and `rest`, the statements after it."""
    condition = s.expressions.condition(node.test)
    if not isinstance(condition, UOp):
        side = node.body if condition else node.orelse
        return _tail(s, side if any(map(leaves, side)) else side + rest, node)
    # A side that does not return goes on with the statements after the if.
    ends = [any(map(leaves, side)) for side in (node.body, node.orelse)]
    if all(ends):
        _check_rest(s, rest)
    elif not any(ends) and rest:
        fix = "Let one side return on every path, or set a variable and return it at the end."
        raise s.error(node, "both sides of this if go on, and one returns too", fix)
    sides = [
        side if end else side + rest
        for side, end in zip((node.body, node.orelse), ends, strict=True)
    ]
    before, results, nodes = s.names.visible, [], []
    for side in sides:
        s.names.branch(before)
        # Captured, because the dtype of a choice depends on both sides.
        result, made = s.emit.capture(partial(_tail, s, side, node))
        results.append(result)
        nodes.append(made)
    s.emit.line = s.text.mark(node)
    if all(isinstance(result.value, Nothing) for result in results):
        s.emit.branch(condition, *nodes)
        return results[0]
    for result in results:
        if isinstance(result.value, Nothing):
            raise s.error(result.at, *_PARTLY)
    sources = [(result.at, result.value, made) for result, made in zip(results, nodes, strict=True)]
    return _Result(join(s.expressions, condition, sources, None), node)


def _returned(s: Statements, node: ast.Return) -> _Result:
    """Lower `return value`; the value gets the dtype that the function's annotation declares."""
    function = s.inlined
    if function is None or node.value is None or getattr(node.value, "value", node) is None:
        return _ended(s, node)
    if isinstance(node.value, ast.Tuple):
        fix = "Write a function for each, or store them through a hal.Ptr parameter."
        raise s.error(node.value, "a function gives one value", fix)
    if function.returns is type(None):
        problem = f"{function.__name__} gives nothing back, it says -> None"
        raise s.error(node.value, problem, "Write -> hal.float32, or leave it out.")
    want = function.returns if isinstance(function.returns, DType) else None
    s.emit.line = s.text.mark(node)
    value = s.expressions.expression(node.value, want)
    if want is not None:
        value = s.expressions.typed(node.value, s.expressions.operand(node.value, value), want)
    return _Result(value, node.value)


def _ended(s: Statements, at: ast.AST) -> _Result:
    """Return the result of a path without a value."""
    if s.inlined is not None and isinstance(s.inlined.returns, DType):
        raise s.error(at, *_PARTLY)
    return _Result(Nothing(getattr(s.inlined, "__name__", "")), at)


def _returns(node: ast.stmt) -> bool:
    """Tell whether a path through the statement returns."""
    if isinstance(node, ast.If):
        return any(map(_returns, node.body)) or any(map(_returns, node.orelse))
    return isinstance(node, ast.Return)


def _check_rest(s: Statements, rest: list[ast.stmt]) -> None:
    """Refuse statements after a return."""
    if rest:
        fix = "Leave it out, or put the return before it under if."
        raise s.error(rest[0], "this never runs", fix)


_PARTLY = "the function gives a value on some paths only", "End each of them with return value."

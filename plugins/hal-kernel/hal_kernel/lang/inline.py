"""Inline calls of functions with `@hal.func`: the body takes the place of the call.

@hal.func                       y[i] = sign(x[i])  ->  value = x[i]
def sign(x):                                           if value < 0: choice = -1
    if x < 0:                                          else: choice = 1
        return -1                                      y[i] = choice
    return 1
"""

from __future__ import annotations

import ast
import os
from typing import Any

from hal_core.dtypes import DType
from hal_kernel.ir.uop import dtype_of
from hal_kernel.lang.emit import Memory, Nothing
from hal_kernel.lang.expressions import Expressions
from hal_kernel.lang.func import InlineFunction
from hal_kernel.lang.names import Names
from hal_kernel.lang.pointers import PointerType
from hal_kernel.lang.returns import tail
from hal_kernel.lang.shapes import flattened
from hal_kernel.lang.statements import Statements
from hal_kernel.lang.tables import table


def inline(x: Expressions, node: ast.Call, function: InlineFunction) -> Any:
    """Lower a call; its value is a node, a compile-time constant, or Nothing."""
    emit, name = x.emit, function.__name__
    if function in emit.calls:
        raise x.error(node, f"{name} calls itself", "Write it as a loop.")
    x.count(node)
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
    body = Statements(text, Names(function.__wrapped__, text.tree), emit, x.grammar, function)
    # A parameter is the argument itself, and a variable only if the body assigns it.
    emit.calls.append(function)  # so that a call of itself in the body is refused
    for argument, (parameter, _), value in zip(node.args, function.parameters, given, strict=True):
        body.names.visible[parameter] = value
        if parameter in body.names.assignments:
            body.set_variable(argument, parameter, x.settled(argument, value, None))
    result = tail(body, body.statements(), text.tree)
    emit.calls.pop()
    emit.line = x.text.mark(node)
    return result.value


def _bound(
    x: Expressions, argument: ast.expr, function: str, name: str,
    annotation: DType | PointerType | None,
) -> Any:  # fmt: skip
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
        if isinstance(value, tuple) and annotation.const:
            value = table(x, argument, value, ast.unparse(argument))
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
        # A pointer takes one index, so an array becomes one-dimensional, row after row.
        return flattened(x, argument, name, value, annotation.const or value.const)
    if isinstance(value, Memory):
        return value.called(name, name)
    return value

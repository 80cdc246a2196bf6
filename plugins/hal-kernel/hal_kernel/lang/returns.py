"""Lower the body of an inlined function to the values that its paths return.

A path ends with a `return`, so the statements after an `if` that returns belong to its other side.
A `return` inside a loop becomes a BREAK:

    for k in range(n):            returned = False
        if x[k] > 3:              for k in range(n):
            return k        ->        if x[k] > 3:
    return -1                             value = k; returned = True; break
                                  if not returned: value = -1
"""

from __future__ import annotations

import ast
from functools import partial
from typing import Any, NamedTuple

from hal_core.dtypes import DType, bool_
from hal_kernel.ir import UOp
from hal_kernel.lang.control import returns
from hal_kernel.lang.emit import Nothing
from hal_kernel.lang.operators import common_dtype, join
from hal_kernel.lang.statements import Statements, leaves


class Result(NamedTuple):
    """The value of one path through the body, and the place in the text that returns it.

    The value is a node, a compile-time constant, a tuple of them, or Nothing.
    """

    value: Any
    at: ast.AST


def tail(s: Statements, body: list[ast.stmt], at: ast.AST) -> Result:
    """Lower the statements of a path up to its return, and return its value."""
    for position, node in enumerate(body):
        rest = body[position + 1 :]
        if isinstance(node, ast.Return):
            _check_rest(s, rest)
            return returned(s, node)
        if isinstance(node, ast.If) and returns(node):
            return _branch(s, node, rest)
        if isinstance(node, (ast.For, ast.While)) and returns(node):
            return _loop(s, node, rest, at)
        s.block([node])
    return _ended(s, at)


def _branch(s: Statements, node: ast.If, rest: list[ast.stmt]) -> Result:
    """Lower an if that returns on some path, and `rest`, the statements after it."""
    condition = s.expressions.condition(node.test)
    if not isinstance(condition, UOp):
        side = node.body if condition else node.orelse
        return tail(s, side if any(map(leaves, side)) else side + rest, node)
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
        result, made = s.emit.capture(partial(tail, s, side, node))
        results.append(result)
        nodes.append(made)
    s.emit.line = s.text.mark(node)
    values = _values(s, results)
    if not values[0]:
        s.emit.branch(condition, *nodes)
        return results[0]
    ats = [result.at for result in results]
    joined = join(s.expressions, condition, list(zip(ats, values, nodes, strict=True)), None)
    return Result(_like(results[0], joined), node)


def _loop(s: Statements, node: ast.stmt, rest: list[ast.stmt], at: ast.AST) -> Result:
    """Lower a loop that returns on some path, and `rest`, the statements after it."""
    emit, x = s.emit, s.expressions
    flag = emit.variable("returned", bool_)
    first = emit.node("SET", None, (flag, emit.constant(False, bool_)))
    s.returned, s.exits = flag, []
    s.block([node])
    exits, s.returned = s.exits, None
    if not exits:  # a constant has decided that no path returns
        return tail(s, rest, at)
    results, nodes = [Result(value, place) for value, place, _ in exits], list[UOp]()
    goes_on = s.names.reached
    if goes_on:
        result, nodes = emit.capture(partial(tail, s, rest, at))
        results.append(result)
    elif leaves(node):
        _check_rest(s, rest)
    emit.line = s.text.mark(node)
    ats, variables = [result.at for result in results], []
    for column in zip(*_values(s, results), strict=True):
        places = list(zip(ats, column, strict=True))
        dtype = common_dtype(x, places)
        variable = emit.variable("result", dtype)
        variables.append(variable)
        emit.set_before(first, variable, 0)  # `verify` cannot see that one of the SETs runs
        for position, place in enumerate(places):
            typed, made = emit.capture(partial(x.typed, *place, dtype))
            made.append(UOp("SET", None, (variable, typed), None, emit.line))
            if position < len(exits):
                emit.insert_before(exits[position].end, made)
            else:
                nodes += made
    if nodes:
        emit.branch(emit.node("NOT", bool_, (emit.get(flag),)), nodes, [])
    return Result(_like(results[0], list(map(emit.get, variables))), node)


def _values(s: Statements, results: list[Result]) -> list[list[Any]]:
    """Return the values of each path, equally many. Raises: KernelSyntaxError."""
    kinds = [isinstance(result.value, Nothing) for result in results]
    if any(kinds) and not all(kinds):
        raise s.error(results[kinds.index(True)].at, *_PARTLY)
    values = [
        [] if isinstance(value, Nothing) else [*value] if isinstance(value, tuple) else [value]
        for value, _ in results
    ]
    for result, own in zip(results, values, strict=True):
        if len(own) != len(values[0]):
            problem = f"this path gives {len(own)} value(s), another {len(values[0])}"
            raise s.error(result.at, problem, "Return as many on each path.")
    return values


def _like(result: Result, values: list[UOp]) -> Any:
    """Return values in the form of a result: none, one, or a tuple."""
    if isinstance(result.value, Nothing):
        return result.value
    return tuple(values) if isinstance(result.value, tuple) else values[0]


def returned(s: Statements, node: ast.Return) -> Result:
    """Lower `return value`; the value gets the dtype that the function's annotation declares."""
    function, x = s.inlined, s.expressions
    if function is None or node.value is None or getattr(node.value, "value", node) is None:
        return _ended(s, node)
    declared = function.returns
    if declared is type(None):
        problem = f"{function.__name__} returns a value, but its type is -> None"
        raise s.error(node.value, problem, "Write -> hal.float32, or leave it out.")
    wants = declared if isinstance(declared, tuple) else ()
    if isinstance(declared, DType):
        wants = (declared,)
    s.emit.line = s.text.mark(node)
    if isinstance(node.value, ast.Tuple):
        value: Any = x.several(node.value, wants)
    else:
        value = x.expression(node.value, wants[0] if wants else None)
    if not wants:
        return Result(value, node.value)
    given = value if isinstance(value, tuple) else (value,)
    if len(given) != len(wants) or isinstance(value, tuple) != isinstance(declared, tuple):
        says = ", ".join(f"hal.{dtype.__name__}" for dtype in wants)
        says = f"tuple[{says}]" if isinstance(declared, tuple) else says
        problem = f"{function.__name__} gives {len(given)} value(s) here, it says -> {says}"
        raise s.error(node.value, problem, "Correct the annotation, or what is returned.")
    ats = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(given)
    typed = [
        x.typed(at, x.operand(at, one), want)
        for at, one, want in zip(ats, given, wants, strict=True)
    ]
    return Result(_like(Result(value, node), typed), node.value)


def _ended(s: Statements, at: ast.AST) -> Result:
    """Return the result of a path without a value."""
    if s.inlined is not None and s.inlined.returns not in (None, type(None)):
        raise s.error(at, *_PARTLY)
    return Result(Nothing(getattr(s.inlined, "__name__", "")), at)


def _check_rest(s: Statements, rest: list[ast.stmt]) -> None:
    """Refuse statements after a return."""
    if rest:
        fix = "Leave it out, or put the return before it under if."
        raise s.error(rest[0], "this never runs", fix)


_PARTLY = "the function gives a value on some paths only", "End each of them with return value."

"""Lower control flow: conditions, loops, `break`, `continue` and `return`."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

from hal_core.dtypes import DType, bool_, int32, int64
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import dtype_of
from hal_kernel.lang import refusals
from hal_kernel.lang.builtins import unroll
from hal_kernel.lang.constants import fit
from hal_kernel.lang.names import assigned
from hal_kernel.lang.statements import Exit, Loop, Statements


def if_(s: Statements, node: ast.If) -> None:
    condition = s.expressions.condition(node.test)
    if not isinstance(condition, UOp):  # known at compile time: the other side does not exist
        s.block(node.body if condition else node.orelse)
        return
    names, emit = s.names, s.emit
    before = names.visible
    block = emit.open("IF", None, (condition,))
    names.branch(before)
    s.block(node.body)
    # Without an else, the other path is the one that skips the body.
    then, names.visible, names.reached = names.path(block), before, True
    if node.orelse:
        then = then[0], emit.node("ELSE", None, (block,))
        names.branch(before)
        s.block(node.orelse)
    end = emit.close(block)
    names.meet(before, [then, names.path(end)], emit)


def while_(s: Statements, node: ast.While) -> None:
    """Lower `while c:` as an endless loop that begins with `if not c: break`."""
    if node.orelse:
        raise s.error(node.orelse[0], "while ... else is not part of the kernel language", _ELSE)
    names, emit = s.names, s.emit
    before = names.visible
    # Every iteration computes the condition, so its nodes go into the loop.
    condition, nodes = emit.capture(lambda: s.expressions.condition(node.test))
    if condition is False:
        # The body does not exist. A load of the condition stays: in checked mode it may fail.
        emit.uops += nodes
        return
    exits = len(s.exits)
    block = emit.open("LOOP")
    loop = Loop(block, [], block)
    start = len(emit.uops)
    emit.uops += nodes
    if isinstance(condition, UOp):
        out = emit.open("IF", None, (emit.node("NOT", bool_, (condition,)),))
        loop.breaks.append((before, emit.node("BREAK", None, (block,))))
        emit.close(out)
    names.branch(before)
    s.loops.append(loop)
    s.block(node.body)
    s.loops.pop()
    # A launch of such a kernel would never end, and nothing after the loop could run.
    returns = len(s.exits) > exits or any(made.op == "RETURN" for made in emit.uops[start:])
    if not loop.breaks and not returns:
        raise s.error(node, "this loop never ends", "Put if ...: break into it.")
    # ENDLOOP jumps back to the condition, in the line of the `while`.
    emit.line = s.text.line(node)
    emit.close(block)
    names.meet(before, loop.breaks, emit)
    _go_on_leaving(s, exits, before, block)


def _go_on_leaving(s: Statements, exits: int, before: dict[str, Any], block: UOp) -> None:
    """Leave the loop around `block` too, if a `return` of a function has left `block`.

    `exits` is the number of such returns before it, `before` are the names visible there.
    """
    if len(s.exits) == exits:
        return
    emit = s.emit
    if s.names.reached:
        # The names that a `return` has not set are not read behind it, which `verify` cannot see.
        for name, value in s.names.visible.items():
            if isinstance(value, UOp) and value.op == "VAR" and before.get(name) is not value:
                emit.set_before(block, value, 0)
    if s.loops and s.returned is not None:
        out = emit.open("IF", None, (emit.get(s.returned),))
        _break(s)
        emit.close(out)


def _break(s: Statements) -> UOp:
    """Leave the innermost loop, which a function returns from."""
    block = s.loops[-1].block
    return s.emit.node("BREAK", None, (block,) if block is not None else ())


def for_(s: Statements, node: ast.For) -> None:
    if node.orelse:
        raise s.error(node.orelse[0], "for ... else is not part of the kernel language", _ELSE)
    if not isinstance(node.target, ast.Name):
        raise s.error(node.target, "a loop must have one counter", _instead(s, node.iter))
    name, call = node.target.id, node.iter
    function = s.expressions.expression(call.func) if isinstance(call, ast.Call) else None
    _check_counter(s, node, name, function is builtins.range)
    if isinstance(call, ast.Call) and function is unroll:
        _unroll(s, node, name, call)
        return
    if not isinstance(call, ast.Call) or function is not builtins.range:
        raise s.error(call, "a loop runs over range(...)", _instead(s, call))
    bounds = _range(s, name, call)
    before, exits = s.names.visible, len(s.exits)
    advance: Callable[[], None] | None = None
    if bounds[2].op == "CONST":  # a RANGE is its own counter
        block = counter = s.emit.open("RANGE", bounds[0].dtype, bounds, name)
    else:
        block, counter, advance = _open_steps(s, name, *bounds)
    s.names.branch(before)
    if name in before:  # behind the loop it is the last number, or what it was
        s.set_variable(node.target, name, counter)
    s.names.visible[name] = counter
    s.loops.append(Loop(block, [], block, advance))
    s.block(node.body)
    s.loops.pop()
    if advance is not None and s.names.reached:
        advance()
    s.emit.close(block)
    s.names.branch(before)  # the loop may run no iteration
    _go_on_leaving(s, exits, before, block)


def _open_steps(
    s: Statements, name: str, start: UOp, stop: UOp, step: UOp
) -> tuple[UOp, UOp, Callable[[], None]]:
    """Open a loop over a range whose step is known at run time only.

    Returns it, its counter, and what writes the step to the next number. As in Python the loop
    counts up or down, and never beyond the last number of its dtype. A step of 0 is no iteration. A
    step of blocks or threads counts up, and its sign is not asked for.
    """
    emit, dtype, rises = s.emit, dtype_of(start), _is_positive(step)

    def add(op: str, *src: UOp, of: DType = bool_) -> UOp:
        return emit.node(op, of, src)

    zero, least, most = (emit.constant(n, dtype) for n in (0, int(dtype.min), int(dtype.max)))
    emit.node("ASSERT", None, (add("NE", step, zero),), "the step of range is 0")
    if not rises:
        up, down = add("GT", step, zero), add("LT", step, zero)
        highest, lowest = (add("SUB", end, step, of=dtype) for end in (most, least))
    variable = emit.variable(name, dtype)
    emit.set(variable, start)
    block = emit.open("LOOP")
    now = emit.get(variable)
    goes_on = add("LT", now, stop)
    if not rises:
        above = add("AND", down, add("GT", now, stop))
        goes_on = add("OR", add("AND", up, goes_on), above)
    out = emit.open("IF", None, (add("NOT", goes_on),))
    emit.node("BREAK", None, (block,))
    emit.close(out)
    counter = emit.get(variable)

    def advance() -> None:
        total = add("ADD", counter, step, of=dtype)
        if rises:
            fits = add("GT", total, counter)  # also where the product of a step wraps
        else:
            fits = add("WHERE", up, add("LE", counter, highest), add("GE", counter, lowest))
        emit.set(variable, add("WHERE", fits, total, stop, of=dtype))

    return block, counter, advance


def _is_positive(step: UOp) -> bool:
    """Tell whether a step is a number of blocks or threads, or a positive multiple of one."""
    if step.op in ("MUL", "CAST"):
        return all(map(_is_positive, step.src))
    if step.op == "CONST":
        return bool(step.arg > 0)
    return step.op == "SPECIAL" and step.arg[0] in ("block_dim", "grid_dim", "subgroup_size")


def _instead(s: Statements, over: ast.expr) -> str:
    """Return the fix of an error: what to write instead of a loop over `over`."""
    for part in over.args if isinstance(over, ast.Call) else [over]:
        captured = isinstance(part, ast.Name) and not s.names.is_local(part.id)
        if captured and isinstance(s.expressions.expression(part), tuple):
            return f"Write for k in hal.unroll(len({ast.unparse(part)})): and index with k."
    return refusals.loop(over)


def _check_counter(s: Statements, loop: ast.For, name: str, ranges: bool) -> None:
    """Refuse a counter that its loop assigns, or whose name already has a value that stays."""
    for node in ast.walk(loop) if name in s.names.assignments else ():
        if isinstance(node, (ast.Assign, ast.AugAssign)) and name in assigned(node):
            fix = "Write a while loop for a counter that changes."
            raise s.error(node, f"the counter {name!r} cannot be assigned", fix)
    known = s.names.visible.get(name)
    if known is not None and not (ranges and isinstance(known, UOp) and known.op == "VAR"):
        fix = "Give the counter a name of its own."
        raise s.error(loop.target, f"the counter {name!r} is another variable too", fix)


def _unroll(s: Statements, node: ast.For, name: str, call: ast.Call) -> None:
    """Lower the body once per iteration, with a Python number as the counter."""
    fix = "Write for k in hal.unroll(4):."
    if call.keywords or not 1 <= len(call.args) <= 3:
        raise s.error(call, "unroll takes one to three arguments", fix)
    values = []
    for part in call.args:
        value = s.expressions.expression(part)
        if type(value) is not int:
            fix = "Write range(...) for bounds that the launch decides."
            raise s.error(part, "unroll takes ints that are known at compile time", fix)
        values.append(value)
    if len(values) == 3 and not values[2]:
        raise s.error(call.args[2], "the step must be an int other than 0", fix)
    counters = range(*values)
    if counters[_MOST_ITERATIONS:]:
        problem = f"unroll takes {_MOST_ITERATIONS} iterations at most"
        raise s.error(call, problem, "Write range(...), with an unrolled loop inside it.")
    before, exits, emit = s.names.visible, len(s.exits), s.emit
    # To return from inside, a function leaves a loop that runs once.
    block = emit.open("LOOP") if s.inlined is not None and returns(node) else None
    s.loops.append(Loop(None, [], block))
    s.names.branch(before)
    for counter in counters:
        s.expressions.count(call)
        s.names.visible[name] = counter
        s.block(node.body)
        if not s.names.reached:  # the body has returned: later iterations never run
            break
    loop = s.loops.pop()
    if loop.block is not None:
        if s.names.reached:
            end = emit.node("BREAK", None, (loop.block,))
            loop.breaks.append((s.names.visible, end))
        emit.close(loop.block)
        s.names.meet(before, loop.breaks, emit)
        _go_on_leaving(s, exits, before, loop.block)
    s.names.visible.pop(name, None)


def _range(s: Statements, name: str, call: ast.Call) -> tuple[UOp, UOp, UOp]:
    x, fix = s.expressions, "Write for k in range(n):."
    if call.keywords or not 1 <= len(call.args) <= 3:
        raise s.error(call, "range takes one to three arguments", fix)
    values = [x.operand(part, x.expression(part)) for part in call.args]
    if len(values) == 1:
        values.insert(0, 0)
    if len(values) == 2:
        values.append(1)
    numbers = [value for value in values if not isinstance(value, UOp)]
    if any(isinstance(number, float) for number in numbers):
        raise s.error(call, "range takes integers, not floats", fix)
    # Numbers alone decide no dtype: the first gets one, and `unify` gives it to the others.
    if len(numbers) == len(values):
        small = all(fit(number, int32) is not None for number in numbers)
        values[0] = x.typed(call, values[0], int32 if small else int64)
    start, stop, step = x.unify(call, "range", values)
    if start.dtype not in (int32, int64):
        fix = f"Cast the bounds: {refusals.index_dtype(start.dtype)}(...)."
        raise s.error(call, f"range takes int32 or int64, not {start.dtype}", fix)
    if step.op == "CONST" and step.arg == 0:
        raise s.error(call.args[2], "the step must be an int other than 0", fix)
    return start, stop, step


def break_(s: Statements, node: ast.Break) -> None:
    loop = s.loops[-1]
    end = s.emit.node("BREAK", None, (_loop_to_leave(s, node, loop),))
    # A name is visible after the loop only if it is at all its breaks.
    loop.breaks.append((s.names.visible, end))
    s.names.reached = False


def continue_(s: Statements, node: ast.Continue) -> None:
    loop = s.loops[-1]
    block = _loop_to_leave(s, node, loop)
    if loop.advance is not None:
        loop.advance()
    s.emit.node("CONTINUE", None, (block,))
    s.names.reached = False


def _loop_to_leave(s: Statements, node: ast.stmt, loop: Loop) -> UOp:
    # The IR has no node for an unrolled loop, so nothing that a BREAK could leave.
    if loop.node is None:
        fix = "Put the rest of its body under if, or loop with range(...)."
        raise s.error(node, f"{ast.unparse(node)} cannot leave an unrolled loop", fix)
    return loop.node


def return_(s: Statements, node: ast.Return) -> None:
    if s.inlined is not None:
        from hal_kernel.lang.returns import returned  # imported late: it needs this module

        value, at = returned(s, node)
        if s.returned is not None:
            s.emit.set(s.returned, s.emit.constant(True, bool_))
        s.exits.append(Exit(value, at, _break(s)))
        s.names.reached = False
        return
    if node.value is not None and getattr(node.value, "value", node) is not None:
        fix = "Store into a hal.Ptr parameter, and write return."
        raise s.error(node.value, "a kernel returns no value", fix)
    s.emit.node("RETURN")
    s.names.reached = False


def returns(node: ast.stmt) -> bool:
    """Tell whether a path through the statement returns."""
    return any(isinstance(part, ast.Return) for part in ast.walk(node))


_MOST_ITERATIONS = 256  # of an unrolled loop
_ELSE = "Set a variable before the break, and test it after the loop."

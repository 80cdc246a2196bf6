"""Statements of the kernel language, and the way from a function to its IR."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from hal_core.dtypes import int32, int64
from hal_core.ir import Signature, UOp
from hal_core.lang import refusals
from hal_core.lang.access import element
from hal_core.lang.constants import fit
from hal_core.lang.emit import Emitter, Pointer, dtype_of
from hal_core.lang.expressions import Expressions
from hal_core.lang.names import Names
from hal_core.lang.operators import binary
from hal_core.lang.text import SourceText

_TOO_DEEP = "too long or nested too deeply", "Split it over several statements."


def lower(function: FunctionType, lines: Sequence[str], signature: Signature) -> tuple[UOp, ...]:
    """The IR of a kernel function's body; `lines` are its file's. Raises: KernelSyntaxError."""
    text = SourceText(function, lines)
    try:
        return Statements(text, Names(function, text.tree), Emitter()).function(signature)
    except RecursionError:  # of blocks; that of one statement is pointed at in `block`
        raise text.error(text.tree, *_TOO_DEEP) from None


class Statements:
    """Lowers statements in the order of the text."""

    def __init__(self, text: SourceText, names: Names, emit: Emitter) -> None:
        self.text, self.names, self.emit = text, names, emit
        self.expressions = Expressions(text, names, emit)
        self.error = self.expressions.error

    def function(self, signature: Signature) -> tuple[UOp, ...]:
        tree = self.text.tree
        self.emit.line = self.text.line(tree)
        for param in signature.params:
            node = self.emit.node("PARAM", param.dtype, (), param.position)
            self.names.visible[param.name] = Pointer(param, node) if param.is_pointer else node
        params, self.emit.uops = self.emit.uops, []
        for param in signature.values:
            if self.names.assignments.get(param.name):
                self._set_variable(tree, param.name, params[param.position])
        first, *_ = tree.body
        has_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        self.block(tree.body[1:] if has_doc else tree.body)
        return (*params, *self.emit.variables, *self.emit.uops)

    def block(self, body: list[ast.stmt]) -> None:
        for node in body:
            self.emit.line = self.text.line(node)
            lower = _LOWERINGS.get(type(node))
            if lower is None:
                problem, fix = refusals.STATEMENTS.get(
                    type(node), ("this statement", "Write assignments, if and for.")
                )
                raise self.error(node, f"{problem} is not part of the kernel language", fix)
            try:
                lower(self, node)
            except RecursionError:
                raise self.error(getattr(node, "value", node), *_TOO_DEEP) from None

    # -- assignment

    def _assign(self, node: ast.Assign) -> None:
        (target, *more) = node.targets
        if more or not isinstance(target, (ast.Name, ast.Subscript)):
            fix = "Write one assignment on a line, each to one name or element."
            raise self.error(node, "an assignment has one target, a name or an element", fix)
        if isinstance(target, ast.Subscript):
            pointer, index = self._target(target)
            value = self.expressions.value(node.value, pointer.dtype)
            self._store(node.value, pointer, index, value)
            return
        self._check_assignable(target)
        variable = self.names.variables.get(target.id)
        want = variable.dtype if variable else None
        value = self.expressions.expression(node.value, want)
        if not variable and isinstance(value, (int, float)):
            self.names.numbers[target.id] = value, self.text.line(node)
        value = self.expressions.settled(node.value, value, want)
        if self.names.assigned_once(target.id):
            self.names.visible[target.id] = value
        else:
            self._set_variable(node.value, target.id, value)

    def _augmented(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Subscript):
            pointer, index = self._target(target)
            old = self.emit.node("LOAD", pointer.dtype, (pointer, index))
            self._store(node, pointer, index, self._combined(node, old))
        elif isinstance(target, ast.Name):
            self._check_assignable(target)
            old = self.expressions.value(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            self._set_variable(node, target.id, self._combined(node, old))
        else:
            raise self.error(node, "only names and elements are assigned", "Write x[i] += 1.")

    def _target(self, node: ast.Subscript) -> tuple[UOp, UOp]:
        x = self.expressions
        return element(x, node, x.expression(node.value), stored=True)

    def _combined(self, node: ast.AugAssign, old: UOp) -> UOp:
        x = self.expressions
        value = x.operand(node.value, x.expression(node.value, old.dtype))
        self.emit.line = self.text.line(node)
        result: UOp = binary(x, node, node.op, old, value)
        return result

    def _store(self, at: ast.AST, pointer: UOp, index: UOp, value: UOp) -> None:
        typed = self.expressions.typed(at, value, dtype_of(pointer))
        self.emit.node("STORE", None, (pointer, index, typed))

    def _set_variable(self, at: ast.AST, name: str, value: UOp) -> None:
        variable, dtype = self.names.variables.get(name), dtype_of(value)
        if variable is None:
            variable = self.names.variables[name] = self.emit.variable(name, dtype)
        if variable.dtype is not dtype:
            raise self.error(
                at,
                f"{name!r} is {variable.dtype} since line {variable.line}, the value {dtype}",
                f"Cast the value, or start with {name} = hal.{dtype.__name__}(...).",
            )
        self.emit.set(variable, value)
        self.names.visible[name] = variable

    def _check_assignable(self, target: ast.Name) -> None:
        name = target.id
        if isinstance(self.names.visible.get(name), Pointer):
            raise self.error(
                target, f"the pointer {name!r} cannot be assigned", "Add to the index."
            )
        if name in self.names.counters:
            raise self.error(target, f"{name!r} is a loop's counter", "Assign to another name.")

    # -- control flow

    def _if(self, node: ast.If) -> None:
        condition = self.expressions.condition(node.test)
        if not isinstance(condition, UOp):  # known now: the other side does not exist
            self.block(node.body if condition else node.orelse)
            return
        block = self.emit.node("IF", None, (condition,))
        before = dict(self.names.visible)
        self.block(node.body)
        after_then, self.names.visible = self.names.visible, before
        if node.orelse:
            self.names.visible = dict(before)
            self.emit.node("ELSE", None, (block,))
            self.block(node.orelse)
        self.emit.node("ENDIF", None, (block,))
        self.names.merge(after_then)

    def _for(self, node: ast.For) -> None:
        name = self._counter(node)
        bounds = self._range(node)
        loop = self.emit.node("RANGE", bounds[0].dtype, bounds, name)
        before = dict(self.names.visible)
        self.names.visible[name] = loop
        self.block(node.body)
        self.emit.node("ENDRANGE", None, (loop,))
        self.names.visible = before  # a loop may run no time

    def _counter(self, node: ast.For) -> str:
        if node.orelse:
            raise self.error(
                node.orelse[0], "for ... else is not part of the kernel language", "Use if."
            )
        if not isinstance(node.target, ast.Name):
            raise self.error(node.target, "a loop has one counter", "Write for k in range(n):.")
        name = node.target.id
        if name in self.names.visible or name in self.names.assignments:
            fix = "Give the counter a name of its own."
            raise self.error(node.target, f"the counter {name!r} is another variable too", fix)
        return name

    def _range(self, node: ast.For) -> tuple[UOp, UOp, UOp]:
        call, x = node.iter, self.expressions
        fix = refusals.loop(call)
        if not isinstance(call, ast.Call) or x.expression(call.func) is not builtins.range:
            raise self.error(call, "a loop runs over range(...)", fix)
        if call.keywords or not 1 <= len(call.args) <= 3:
            raise self.error(call, "range takes one to three arguments", fix)
        values = [x.operand(part, x.expression(part)) for part in call.args]
        if len(values) == 1:
            values.insert(0, 0)
        if len(values) == 2:
            values.append(1)
        numbers = [value for value in values if not isinstance(value, UOp)]
        if any(isinstance(number, float) for number in numbers):
            raise self.error(call, "range takes integers, not floats", fix)
        if len(numbers) == len(values):
            small = all(fit(number, int32) is not None for number in numbers)
            values[0] = x.typed(call, values[0], int32 if small else int64)
        start, stop, step = x.unify(call, "range", values)
        if start.dtype not in (int32, int64):
            fix = "Cast the bounds: hal.int32(...)."
            raise self.error(call, f"range takes int32 or int64, not {start.dtype}", fix)
        if step.op != "CONST" or step.arg == 0:
            fix = "Write the step as a number, or count from 0 and multiply."
            raise self.error(call, "the step is a constant other than 0", fix)
        return start, stop, step

    def _expression(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and node.value.value is ...:
            return
        self.expressions.expression(node.value)
        raise self.error(node, "the value is not used", "Assign it, or leave the line out.")

    def _pass(self, node: ast.Pass) -> None:
        pass


_LOWERINGS: dict[type[ast.stmt], Callable[[Statements, Any], None]] = {
    ast.Assign: Statements._assign,
    ast.AugAssign: Statements._augmented,
    ast.If: Statements._if,
    ast.For: Statements._for,
    ast.Expr: Statements._expression,
    ast.Pass: Statements._pass,
}

"""Statements of the kernel language, and the way from a function to its IR."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from hal_core.ir import CONST_POINTER, Signature, UOp
from hal_core.lang import control, refusals
from hal_core.lang.access import element
from hal_core.lang.emit import Emitter, Memory, dtype_of
from hal_core.lang.expressions import Expressions
from hal_core.lang.names import Names
from hal_core.lang.operators import binary
from hal_core.lang.text import SourceText

_NEVER = "Leave it out, or put what leaves before it under if."
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
        self.loops: list[control.Loop] = []  # around the current place

    def function(self, signature: Signature) -> tuple[UOp, ...]:
        tree = self.text.tree
        self.emit.line = self.text.line(tree)
        for param in signature.params:
            node = self.emit.node("PARAM", param.dtype, (), param.position)
            memory = Memory(param.name, node, param.kind == CONST_POINTER)
            self.names.visible[param.name] = memory if param.is_pointer else node
        params, self.emit.uops = self.emit.uops, []
        for param in signature.values:
            if self.names.assignments.get(param.name):
                self._set_variable(tree, param.name, params[param.position])
        first, *_ = tree.body
        has_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        self.block(tree.body[1:] if has_doc else tree.body)
        return (*params, *self.emit.variables, *self.emit.uops)

    def block(self, body: list[ast.stmt]) -> None:
        for position, node in enumerate(body):
            if not self.names.reached:
                if control.leaves(body[position - 1]):
                    raise self.error(node, "this never runs", _NEVER)
                return  # known now, as the other side of a known if
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
        if isinstance(self.names.visible.get(name), Memory):
            raise self.error(
                target, f"the pointer {name!r} cannot be assigned", "Add to the index."
            )
        if name in self.names.counters:
            raise self.error(target, f"{name!r} is a loop's counter", "Assign to another name.")

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
    ast.If: control.if_,
    ast.For: control.for_,
    ast.While: control.while_,
    ast.Break: control.break_,
    ast.Continue: control.continue_,
    ast.Return: control.return_,
    ast.Expr: Statements._expression,
    ast.Pass: Statements._pass,
}

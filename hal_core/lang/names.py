"""What a name means in a kernel: a local, a parameter, or a Python object from outside."""

from __future__ import annotations

import ast
import builtins
from types import FunctionType
from typing import Any

from hal_core.ir import UOp
from hal_core.lang.annotations import closure_of
from hal_core.lang.constants import Number
from hal_core.lang.emit import Emitter, dtype_of
from hal_core.lang.text import parameters_of

# The end of a path through the text: what is visible there, and the node that ends it. Of a path
# that has left there is nothing.
Path = tuple[dict[str, Any] | None, UOp]


class Names:
    """The names of one function and, of the locals, which have a value at the current place.

    A local assigned at one place is that value's node. Any other is a VAR, declared once; here
    `visible` holds the VAR itself while every path to the current place has assigned it.
    """

    def __init__(self, function: FunctionType, tree: ast.FunctionDef) -> None:
        self.function = function
        self.parameters = {arg.arg for arg in parameters_of(tree)}
        self.counters: set[str] = set()  # of for loops
        self.assignments: dict[str, int] = {}  # name -> number of places that assign it
        self.variables: dict[str, UOp] = {}
        self.numbers: dict[str, tuple[Number, int]] = {}  # locals begun with one, and its line
        self.visible: dict[str, Any] = {}
        self.reached = True  # False behind a break, continue or return
        self._closure = closure_of(function)
        self._find_assignments(tree.body, 1)

    def _find_assignments(self, body: list[ast.stmt], times: int) -> None:
        for node in body:
            inside = times
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._count(target.id, times)
                continue
            if isinstance(node, ast.AugAssign):
                if isinstance(node.target, ast.Name):
                    self._count(node.target.id, times)
                continue
            if isinstance(node, ast.For):
                if isinstance(node.target, ast.Name):
                    self.counters.add(node.target.id)
                if not _is_range(node.iter):
                    inside = 2  # hal.unroll repeats the body
            for part in ("body", "orelse"):
                self._find_assignments(getattr(node, part, []), inside)

    def _count(self, name: str, times: int) -> None:
        self.assignments[name] = self.assignments.get(name, 0) + times

    def assigned_once(self, name: str) -> bool:
        return self.assignments[name] == 1 and name not in self.parameters

    def is_local(self, name: str) -> bool:
        return name in self.parameters or name in self.assignments or name in self.counters

    def outside(self, name: str) -> Any:
        """Raises: KeyError when no enclosing function, module or builtin has the name."""
        if name in self._closure:
            return self._closure[name]
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        return vars(builtins)[name]

    def near(self, name: str) -> list[str]:
        import difflib

        known = [*self.visible, *self._closure, *self.function.__globals__]
        return difflib.get_close_matches(name, known, 1)

    def path(self, end: UOp) -> Path:
        return (self.visible if self.reached else None), end

    def branch(self, visible: dict[str, Any]) -> None:
        """Goes on at the start of a block where `visible` is."""
        self.visible, self.reached = dict(visible), True

    def meet(self, before: dict[str, Any], paths: list[Path], emit: Emitter) -> None:
        """Goes on where `paths` end that began with `before`: with what each of them sees.

        A value that only one block computed ends with it; what is visible further on goes through
        a variable.
        """
        alive = [(visible, end) for visible, end in paths if visible is not None]
        self.reached = bool(alive)
        if not alive:
            return
        (first, _), *others = alive
        self.visible = {}
        for name, value in first.items():
            if any(other.get(name) is not value for other, _ in others):
                continue
            if isinstance(value, UOp) and value.op != "VAR" and before.get(name) is not value:
                variable = self.variables[name] = emit.variable(name, dtype_of(value))
                for _, end in alive:
                    emit.set_before(end, variable, value)
                value = variable
            self.visible[name] = value


def _is_range(over: ast.expr) -> bool:
    return isinstance(over, ast.Call) and getattr(over.func, "id", "") == "range"

"""What a name means in a kernel: a local, a parameter, or a Python object from outside."""

from __future__ import annotations

import ast
import builtins
from types import FunctionType
from typing import Any

from hal_core.ir import UOp
from hal_core.lang.annotations import closure_of
from hal_core.lang.constants import Number
from hal_core.lang.emit import Pointer


class Names:
    """The names of one kernel and, of the locals, which have a value at the current place.

    A local assigned at one place is that value's node. Any other is a VAR, declared once; here
    `visible` holds the VAR itself while every path to the current place has assigned it.
    """

    def __init__(self, function: FunctionType, tree: ast.FunctionDef) -> None:
        self.function = function
        self.parameters = {arg.arg for arg in ast.walk(tree.args) if isinstance(arg, ast.arg)}
        self.counters: set[str] = set()  # of for loops
        self.assignments: dict[str, int] = {}  # name -> number of places that assign it
        self.variables: dict[str, UOp] = {}
        self.numbers: dict[str, tuple[Number, int]] = {}  # locals begun with one, and its line
        self.visible: dict[str, UOp | Pointer] = {}
        self._closure = closure_of(function)
        self._find_assignments(tree.body)

    def _find_assignments(self, body: list[ast.stmt]) -> None:
        for node in body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AugAssign):
                targets = [node.target]
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                self.counters.add(node.target.id)
            for target in targets:
                if isinstance(target, ast.Name):
                    self.assignments[target.id] = self.assignments.get(target.id, 0) + 1
            for part in ("body", "orelse"):
                self._find_assignments(getattr(node, part, []))

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

    def merge(self, other: dict[str, UOp | Pointer]) -> None:
        """Two paths meet: what is visible is what both of them see."""
        self.visible = {
            name: node for name, node in self.visible.items() if other.get(name) is node
        }

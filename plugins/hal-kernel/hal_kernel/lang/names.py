"""Resolve names in a kernel: locals, parameters, and Python objects from outside."""

from __future__ import annotations

import ast
import builtins
from functools import partial
from types import FunctionType
from typing import Any

from hal_kernel.ir import UOp
from hal_kernel.ir.uop import dtype_of
from hal_kernel.lang.constants import Number
from hal_kernel.lang.emit import Emitter, Memory
from hal_kernel.lang.scope import closure_of
from hal_kernel.lang.text import parameters_of

# The end of a path through the text: the names visible there (None if a break, continue or return
# ended it earlier), and the node that ends it.
Path = tuple[dict[str, Any] | None, UOp]


def assigned(node: ast.Assign | ast.AugAssign) -> list[str]:
    """Return the names that a statement assigns, as often as it does: `a, b = b = f(x)`."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts = [part for target in targets for part in getattr(target, "elts", [target])]
    return [part.id for part in parts if isinstance(part, ast.Name)]


class Names:
    """The names of one function, and their values at the statement that is being lowered.

    A local that one statement assigns is the node of its value. Any other is a VAR, declared
    once; `visible` has the VAR while every path to the current statement has assigned it.

        x = y[0]            x: the LOAD, visible from here on
        if c:
            k = 1           k: a VAR, visible to the end of the if
        else:
            k = 2           k: visible after the if, because both paths have set it
    """

    def __init__(self, function: FunctionType, tree: ast.FunctionDef) -> None:
        self.function = function
        self.parameters = {arg.arg for arg in parameters_of(tree)}
        self.counters: set[str] = set()  # of for loops
        self.assignments: dict[str, int] = {}  # name -> number of statements that assign it
        self.places: dict[str, int] = {}  # the same, without repetitions by hal.unroll
        self.variables: dict[str, UOp] = {}
        self.numbers: dict[str, tuple[Number, int]] = {}  # local -> its first number, and the line
        self.visible: dict[str, Any] = {}
        self.reached = True  # False after a break, continue or return
        self._closure = closure_of(function)
        # Counted before lowering: a local that is assigned once needs no variable.
        self._find_assignments(tree.body, 1)
        for name in self.counters & self.assignments.keys():  # its loop assigns it, too
            self.assignments[name] += 1
            self.places[name] += 1

    def _find_assignments(self, body: list[ast.stmt], times: int) -> None:
        for node in body:
            inside = times
            if isinstance(node, (ast.Assign, ast.AugAssign)):
                for name in assigned(node):
                    self.assignments[name] = self.assignments.get(name, 0) + times
                    self.places[name] = self.places.get(name, 0) + 1
                continue
            if isinstance(node, ast.For):
                if isinstance(node.target, ast.Name):
                    self.counters.add(node.target.id)
                over = node.iter
                if not isinstance(over, ast.Call) or getattr(over.func, "id", "") != "range":
                    inside = 2  # hal.unroll repeats the body
            for part in ("body", "orelse"):
                self._find_assignments(getattr(node, part, []), inside)

    def assigned_once(self, name: str) -> bool:
        return self.assignments[name] == 1 and name not in self.parameters

    def assigned_in_one_place(self, name: str) -> bool:
        return self.places[name] == 1 and name not in self.parameters

    def is_local(self, name: str) -> bool:
        return name in self.parameters or name in self.assignments or name in self.counters

    def outside(self, name: str) -> Any:
        """Return the Python object of a captured name. Raises: KeyError if there is none."""
        # The order in which Python looks names up.
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
        """Continue at the start of a block, with the names of `visible`."""
        self.visible, self.reached = dict(visible), True

    def meet(self, before: dict[str, Any], paths: list[Path], emit: Emitter) -> None:
        """Continue where `paths` meet, with the names that all of them have assigned.

        The paths began with the names `before`. A value that is computed inside a block is not
        visible after it; if its name is, the value goes through a VAR that each path sets at its
        end.
        """
        alive = [(visible, end) for visible, end in paths if visible is not None]
        self.reached = bool(alive)
        if not alive:
            return
        (common, _), *others = alive
        for other, _ in others:  # one that has not assigned a name, or assigned another value
            common = {name: value for name, value in common.items() if other.get(name) is value}
        self.visible = {}
        for name, value in common.items():
            if before.get(name) is value:
                pass
            elif isinstance(value, UOp) and value.op != "VAR":
                variable = self.variables[name] = emit.variable(name, dtype_of(value))
                for _, end in alive:
                    emit.set_before(end, variable, value)
                value = variable
            elif isinstance(value, Memory):
                if value.node.op == "LOCAL":
                    continue  # the array may have been declared in the block, and is gone
                value = value.moved(partial(self._moved, alive, emit))
            self.visible[name] = value

    def _moved(self, paths: list[tuple[dict[str, Any], UOp]], emit: Emitter, value: UOp) -> UOp:
        """Return a value of all paths as one that is visible where they meet."""
        variable = emit.variable("part", dtype_of(value))
        for _, end in paths:
            emit.set_before(end, variable, value)
        return emit.get(variable)

"""Lower statements: assignments, and the order of all others."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

from hal_core.dtypes import DType, bool_
from hal_core.signature import CONST_POINTER, Signature
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import ATOMIC_OPS, dtype_of
from hal_kernel.lang import memory, refusals, shapes
from hal_kernel.lang.builtins import local, shared
from hal_kernel.lang.constants import computed
from hal_kernel.lang.emit import Emitter, Memory, Nothing
from hal_kernel.lang.expressions import Expressions, Grammar
from hal_kernel.lang.func import InlineFunction
from hal_kernel.lang.names import Names, Path
from hal_kernel.lang.operators import binary
from hal_kernel.lang.text import SourceText

_NEVER = "Leave it out, or put the return, break or continue before it under if."
TOO_DEEP = "too long or nested too deeply", "Split it over several statements."


class Loop(NamedTuple):
    """A loop around the statement that is being lowered."""

    node: UOp | None  # None: it is unrolled
    breaks: list[Path]  # the paths that leave it
    block: UOp | None  # what a BREAK leaves: the node, or the LOOP around an unrolled loop
    advance: Callable[[], None] | None = None  # writes what counts, where RANGE does not


class Exit(NamedTuple):
    """A `return` of a function inside a loop: what it gives, and the BREAK that it became."""

    value: Any
    at: ast.AST
    end: UOp


class _Target(NamedTuple):
    """A target of an assignment: a name, an element of `array`, or several of them, its `parts`.

    `wants` has the dtype of each value that it takes, or None where the value decides.
    """

    node: ast.expr
    wants: tuple[DType | None, ...]
    array: Memory | None = None
    parts: tuple[_Target, ...] = ()


class Statements:
    """Lower statements in the order of the text."""

    def __init__(
        self, text: SourceText, names: Names, emit: Emitter, grammar: Grammar,
        inlined: InlineFunction | None = None,
    ) -> None:  # fmt: skip
        self.text, self.names, self.emit = text, names, emit
        self.inlined = inlined  # the function whose body this is; None: the kernel's
        self.expressions = Expressions(text, names, emit, grammar)
        self.error = self.expressions.error
        self.loops: list[Loop] = []  # the loops around the current statement
        self.exits: list[Exit] = []  # the returns of a function from inside its loops
        self.returned: UOp | None = None  # the VAR that is true after one of them

    def function(self, signature: Signature) -> tuple[UOp, ...]:
        tree = self.text.tree
        self.emit.line = self.text.mark(tree)
        for param in signature.params:
            node = self.emit.node("PARAM", param.dtype, (), param.position)
            pointer = Memory(param.name, node, param.kind == CONST_POINTER)
            self.names.visible[param.name] = pointer if param.is_pointer else node
        # PARAMs and declarations precede the body, after which all declarations are known.
        params, self.emit.uops = self.emit.uops, []
        # A parameter that the body assigns is a variable with the parameter as its first value.
        for param in signature.values:
            if self.names.assignments.get(param.name):
                self.set_variable(tree, param.name, params[param.position])
        self.block(self.statements())
        return (*params, *self.emit.declared, *self.emit.uops)

    def statements(self) -> list[ast.stmt]:
        """Return the body without its docstring."""
        first, *rest = body = self.text.tree.body
        has_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        return rest if has_doc else body

    def block(self, body: list[ast.stmt]) -> None:
        for position, node in enumerate(body):
            if not self.names.reached:
                if leaves(body[position - 1]):
                    raise self.error(node, "this never runs", _NEVER)
                return  # an if that is decided at compile time has left the block
            self.emit.line = self.text.mark(node)
            lower = self.expressions.grammar.statements.get(type(node))
            if lower is None:
                problem, fix = refusals.STATEMENTS.get(
                    type(node), ("this statement", "Write assignments, if and for.")
                )
                raise self.error(node, f"{problem} is not part of the kernel language", fix)
            try:
                lower(self, node)
            except RecursionError:
                raise self.error(getattr(node, "value", node), *TOO_DEEP) from None

    # -- assignment

    def assign(self, node: ast.Assign) -> None:
        """Assign a value to each target in turn, `a = p[i] = v`; several at once to `a, b`."""
        x, value = self.expressions, node.value
        targets = [self._target(target) for target in node.targets]
        function = x.expression(value.func) if isinstance(value, ast.Call) else None
        is_array = function is shared or function is local
        if is_array and isinstance(node.targets[0], ast.Name) and len(targets) == 1:
            self._declare(node.targets[0], value, function.__name__)  # type: ignore
            return
        # A choice of numbers takes the dtype of the first target that has one.
        wants: tuple[DType | None, ...] = (None,)
        several: _Target | None = None
        for target in reversed(targets):
            wants = target.wants if any(target.wants) else wants
            several = target if target.parts else several
        if several is not None and isinstance(value, ast.Tuple):
            self._check_count(several.node, several, tuple(value.elts), value)
            given: Any = x.several(value, wants)
            places: list[ast.expr] = value.elts
        else:
            given, places = x.expression(value, wants[0]), []
        for target in targets:
            if not target.parts:
                self._put(target, value, given)
                continue
            self._check_count(node, target, given, value)
            ats = places or [value] * len(given)
            for part, at, one in zip(target.parts, ats, given, strict=True):
                self._put(part, at, one)

    def _target(self, node: ast.expr, parts: bool = True) -> _Target:
        """Return what an assignment changes. Raises: KernelSyntaxError."""
        if isinstance(node, ast.Subscript):
            array = self._written(node)
            return _Target(node, (computed(dtype_of(array.node)),), array)
        if isinstance(node, ast.Name):
            self._check_assignable(node)
            variable = self.names.variables.get(node.id)
            return _Target(node, (variable.dtype if variable else None,))
        if not isinstance(node, ast.Tuple) or not parts or not node.elts:
            fix = "Write a name or an element for each value: a, p[i] = x, y."
            raise self.error(node, "only names and elements can be assigned", fix)
        inner = tuple(self._target(part, False) for part in node.elts)
        return _Target(node, tuple(part.wants[0] for part in inner), None, inner)

    def _check_count(self, at: ast.AST, target: _Target, given: Any, value: ast.expr) -> None:
        is_several, takes = isinstance(given, tuple), str(len(target.parts))
        count, fix = len(given) if is_several else 1, "Write a target for each value."
        if is_several and count == len(target.parts):
            return
        if count == len(target.parts):  # `a, = n`
            takes = "a tuple of one"
            fix = f"Leave the comma out: {ast.unparse(target.parts[0].node)} = ..."
        problem = f"{ast.unparse(value)} gives {count} value{'s' * (count != 1)}"
        raise self.error(at, f"{problem}, and {ast.unparse(target.node)} takes {takes}", fix)

    def _put(self, target: _Target, at: ast.expr, value: Any) -> None:
        """Assign one value, of the place `at`, to a name or an element."""
        x, place, (want,) = self.expressions, target.node, target.wants
        if target.array is not None:
            # As in Python the value comes before the index, which may change what the value reads.
            made = x.settled(at, value, want)
            index = shapes.flat(x, place, target.array, place.slice)  # type: ignore[attr-defined]
            memory.store(x, at, target.array, index, made)
            return
        name = place.id  # type: ignore[attr-defined]  # what is no element is a Name
        if isinstance(value, Memory) and isinstance(at, (ast.Call, ast.Subscript)):
            self._check_own_name(place)  # type: ignore[arg-type]  # a part of memory, or a view
            self.names.visible[name] = value.called(name)
            return
        if want is None and isinstance(value, (int, float)):
            # For errors: this number decides the dtype of a local that may be meant to be wider.
            self.names.numbers[name] = value, self.text.line(at)
        if isinstance(value, float) and want is not None and not want.is_float:
            want = None  # the error of set_variable says where the variable began
        made = x.settled(at, value, want)
        if name == "_" and name not in self.names.parameters:
            return  # values of any dtypes, none of them used
        if self.names.assigned_once(name):
            self.names.visible[name] = made
        else:
            self.set_variable(at, name, made)

    def augmented_assign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Subscript):
            x = self.expressions
            array = self._written(target)
            index = shapes.flat(x, target, array, target.slice)
            old = memory.load(x, array, index)
            memory.store(x, node, array, index, self._combined(node, old))
        elif isinstance(target, ast.Name):
            self._check_assignable(target)
            # Read as if the name stood there, so that errors underline the target.
            old = self.expressions.value(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            self.set_variable(node, target.id, self._combined(node, old))
        else:
            raise self.error(node, "only names and elements can be assigned", "Write x[i] += 1.")

    def _written(self, node: ast.Subscript) -> Memory:
        x = self.expressions
        return memory.named(x, node, x.expression(node.value), node.value, stored=True)

    def _declare(self, target: ast.Name, call: ast.Call, kind: str) -> None:
        if kind == "shared" and self.inlined is not None:
            fix = "Declare it in the kernel, and pass it to the function."
            raise self.error(call, "an array must be declared in the kernel itself", fix)
        if kind == "shared" and (self.emit.depth or self.loops):
            fix = f"Move {target.id} = hal.shared(...) up, out of the if or the loop."
            raise self.error(call, "an array must be declared at the top level of the kernel", fix)
        self._check_own_name(target)
        self.names.visible[target.id] = memory.array(self.expressions, call, target.id, kind)

    def _check_own_name(self, target: ast.Name) -> None:
        if not self.names.assigned_in_one_place(target.id):
            fix = "Give the array a name of its own."
            raise self.error(target, f"{target.id!r} is assigned elsewhere too", fix)

    def _combined(self, node: ast.AugAssign, old: UOp) -> UOp:
        x = self.expressions
        value = x.operand(node.value, x.expression(node.value, old.dtype))
        # The value may span several lines; the operation belongs to the first.
        self.emit.line = self.text.mark(node)
        result: UOp = binary(x, node, node.op, old, value)
        return result

    def set_variable(self, at: ast.AST, name: str, value: UOp) -> None:
        variable, dtype = self.names.variables.get(name), dtype_of(value)
        if variable is None:
            variable = self.names.variables[name] = self.emit.variable(name, dtype)
        if variable.dtype is not dtype:
            start = f"start with {name} = hal.{dtype.__name__}(...)"
            if name in self.names.parameters:
                start = "give it a name of its own"
            raise self.error(
                at,
                f"{name!r} is {variable.dtype} since line {variable.line}, the value {dtype}",
                f"Cast the value, or {start}.",
            )
        self.emit.set(variable, value)
        self.names.visible[name] = variable

    def _check_assignable(self, target: ast.Name) -> None:
        name = target.id
        known = self.names.visible.get(name)
        # A statement that hal.unroll repeats gives the name a new part of the memory each time.
        if isinstance(known, Memory) and not self.names.assigned_in_one_place(name):
            what = "pointer" if known.shape is None else "array"
            problem = f"the {what} {name!r} cannot be assigned"
            fix = f"Name a part of it: part = {name}[k:]."
            raise self.error(target, problem, fix)

    def expression(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and node.value.value is ...:
            return
        value = self.expressions.expression(node.value)
        if isinstance(value, Nothing):
            return
        # The old value of an atomic is seldom needed, and the call has an effect.
        if isinstance(node.value, ast.Call) and getattr(value, "op", "") in ATOMIC_OPS:
            return
        raise self.error(node, "the value is not used", "Assign it, or leave the line out.")

    def assert_(self, node: ast.Assert) -> None:
        """Check a condition that is known at compile time, and leave any other to checked mode."""
        x, message = self.expressions, ast.unparse(node.test)
        if node.msg is not None:
            if not isinstance(node.msg, ast.Constant) or not isinstance(node.msg.value, str):
                raise self.error(
                    node.msg, "the message must be plain text", 'Write assert c, "text".'
                )
            message = node.msg.value
        condition = x.condition(node.test)
        if condition is True:
            return
        if condition is False and not self.emit.depth:
            fix = "Correct what the kernel captures."
            raise self.error(node.test, f"this does not hold: {message}", fix)
        if not isinstance(condition, UOp):
            condition = self.emit.constant(False, bool_)  # fails if a thread gets here
        self.emit.node("ASSERT", None, (condition,), message)

    def pass_(self, node: ast.Pass) -> None:
        pass


# All other statements are refused, with the fixes of `refusals.STATEMENTS`.


def leaves(node: ast.stmt) -> bool:
    """Tell whether nothing after the statement in its block can run, whatever the values are."""
    if isinstance(node, ast.If):
        sides = (node.body, node.orelse)
        return all(any(map(leaves, side)) for side in sides)
    if isinstance(node, ast.While):
        endless = isinstance(node.test, ast.Constant) and node.test.value
        return bool(endless) and not any(map(_breaks, node.body))
    return isinstance(node, (ast.Break, ast.Continue, ast.Return))


def _breaks(node: ast.stmt) -> bool:
    """Tell whether a statement contains a `break` of the loop around it."""
    if isinstance(node, ast.If):
        return any(map(_breaks, node.body)) or any(map(_breaks, node.orelse))
    return isinstance(node, ast.Break)

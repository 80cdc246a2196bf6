"""Lower expressions of the kernel language.

The result is a typed IR node, or a compile-time constant: a Python number, a dtype, a tuple or a
function. Numbers stay Python's until they meet a typed operand: `2 * 3 + x` with a float32 `x`
computes 6, and then becomes a CONST float32 and an ADD.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from hal_core.dtypes import DType, bool_, float32
from hal_core.errors import shown
from hal_kernel.errors import KernelSyntaxError
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import dtype_of
from hal_kernel.lang import refusals
from hal_kernel.lang.constants import Number, default_dtype, fit, instead
from hal_kernel.lang.emit import Emitter, Memory, Nothing
from hal_kernel.lang.names import Names
from hal_kernel.lang.text import SourceText

_LONGEST_TEXT = 30  # characters of an operand that an error repeats
_MOST_NODES = 50_000  # inlined calls and unrolled loops multiply when they are nested


class Grammar(NamedTuple):
    """The functions that lower each kind of expression and statement."""

    expressions: Mapping[type[ast.AST], Callable[..., Any]]  # (Expressions, node), a choice: + want
    statements: Mapping[type[ast.AST], Callable[..., None]]  # (Statements, node)


class Expressions:
    """Lower expressions; every error points at the place in the user's file."""

    def __init__(self, text: SourceText, names: Names, emit: Emitter, grammar: Grammar) -> None:
        self.text, self.names, self.emit, self.grammar = text, names, emit, grammar

    def error(self, at: ast.AST, problem: str, fix: str) -> KernelSyntaxError:
        return self.text.error(at, problem, fix)

    def count(self, at: ast.AST) -> None:
        """Count an inlined call or an unrolled iteration as an operation, as it may have none.

        Raises: KernelSyntaxError for too many operations.
        """
        self.emit.made += 1
        if self.emit.made > _MOST_NODES:
            problem = f"the kernel has more than {_MOST_NODES} operations"
            raise self.error(at, problem, "Unroll less: loop with range(...).")

    # -- from the syntax tree to a value, a typed node or a condition

    def expression(self, node: ast.expr, want: DType | None = None) -> Any:
        """Return a node or a compile-time constant.

        `want` is the dtype for the numbers of a choice (`1 if c else 2`) without a typed operand.
        """
        self.emit.line = self.text.mark(node)
        lower = self.grammar.expressions.get(type(node))
        if lower is None:
            problem, fix = refusals.EXPRESSIONS.get(
                type(node), ("this expression", "Write it with operators and hal functions.")
            )
            raise self.error(node, f"{problem} is not part of the kernel language", fix)
        # Only a choice takes `want`: other numbers stay untyped until they meet an operand.
        return lower(self, node, want) if isinstance(node, ast.IfExp) else lower(self, node)

    def together(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Return operands that must have one dtype, in order.

        A choice of bare numbers (`1 if c else 2`) takes the dtype of the others, so the others are
        lowered first, and their nodes are put in order afterwards.
        """
        if ast.IfExp not in map(type, nodes):
            return [self.expression(node) for node in nodes]
        read = {
            node: self.emit.capture(partial(self.expression, node))
            for node in nodes
            if not isinstance(node, ast.IfExp)
        }
        want = next((v.dtype for v, _ in read.values() if isinstance(v, UOp)), None)
        values = []
        for node in nodes:
            if node in read:
                value, made = read[node]
                self.emit.uops += made
            else:
                value = self.expression(node, want)
                want = want or getattr(value, "dtype", None)
            values.append(value)
        return values

    def several(self, node: ast.Tuple, wants: Sequence[DType | None]) -> tuple[UOp | Number, ...]:
        """Return the values of `a, b`, in order; each choice of numbers takes its `want`."""
        padded = [*wants, *[None] * len(node.elts)]
        return tuple(
            self.operand(part, self.expression(part, want))
            for part, want in zip(node.elts, padded, strict=False)
        )

    def value(self, node: ast.expr, want: DType | None = None) -> UOp:
        """Return a typed node; a number becomes a constant."""
        return self.settled(node, self.expression(node, want), want)

    def condition(self, node: ast.expr) -> UOp | bool:
        """Return a bool node, or a bool that is known at compile time."""
        value = self.operand(node, self.expression(node))
        if not isinstance(value, UOp):
            return bool(value)
        if value.dtype is not bool_:
            problem = f"a condition must be a bool, not {value.dtype}"
            raise self.error(node, problem, "Compare: x != 0.")
        return value

    # -- from numbers to nodes

    def settled(self, at: ast.AST, value: Any, want: DType | None) -> UOp:
        """Return a typed node; a number gets the dtype `want`, or else its default dtype."""
        value = self.operand(at, value)
        if isinstance(value, UOp):
            return value
        return self.typed(at, value, want or default_dtype(value))

    def operand(self, at: ast.AST, value: Any) -> UOp | Number:
        """Return a value that can be computed with. Raises: KernelSyntaxError for any other."""
        if isinstance(value, (UOp, int, float)):
            return value
        if isinstance(value, Nothing):
            raise self.error(at, f"{value.name} gives no value", "Call it on a line of its own.")
        if isinstance(value, tuple) and isinstance(at, ast.Call):
            names = ", ".join("abcdefgh"[: len(value)])
            fix = f"Give each a name: {names} = {ast.unparse(at)}."
            raise self.error(at, f"{ast.unparse(at.func)} gives {len(value)} values", fix)
        if isinstance(value, (Memory, tuple)):
            name, what = ast.unparse(at), "array" if hasattr(value, "dtype") else "tuple"
            if isinstance(value, Memory):
                name, what = value.name, "pointer" if value.shape is None else "array"
            fix = f"Index it: {name}[i]."
            if isinstance(at, ast.Call):
                fix = f"Write part = {ast.unparse(at)} on a line of its own."
            elif what == "pointer":
                fix += f" Or name a part of it, on a line of its own: part = {name}[k:]."
            raise self.error(at, f"the {what} {name!r} is not a value", fix)
        if isinstance(value, DType):
            raise self.error(
                at, f"the dtype {value} is not a value", f"Cast with it: hal.{value.__name__}(x)."
            )
        if callable(value) and type(value).__hash__ is not None:
            fix = refusals.uncalled(value, ast.unparse(at))
            what = "a function, not a value" if hasattr(value, "__name__") else "not a value"
            raise self.error(at, f"{_describe(value)} is {what}", fix)
        raise self.error(
            at,
            f"{_describe(value)} is not a value of the kernel language",
            "Capture Python ints, floats, bools, dtypes or tuples of them.",
        )

    def typed(self, at: ast.AST, value: UOp | Number, dtype: DType) -> UOp:
        """Return `value` as a node of `dtype`. Raises: KernelSyntaxError for another dtype."""
        if isinstance(value, UOp):
            if value.dtype is not dtype:
                fix = self._start(at, [dtype]) or f"Cast it: hal.{dtype.__name__}(...)."
                raise self.error(at, f"the value is {value.dtype} where {dtype} is needed", fix)
            return value
        return self._constant(at, value, dtype)

    def _constant(self, at: ast.AST, value: Number, dtype: DType | None) -> UOp:
        if dtype is None:
            raise TypeError("an operand is not a value")
        constant = fit(value, dtype)
        if constant is not None:
            return self.emit.constant(constant, dtype)
        # Python would compute with floats. Here the user must say whether in float32 or float64.
        if isinstance(value, float) and not dtype.is_float:
            whole = int(value) if value.is_integer() else None
            fits = whole is not None and fit(whole, dtype) is not None
            fix = f"Write {whole if fits else 'a whole number'}"
            if not isinstance(at, ast.Constant):
                fix += ", or cast the other: hal.float32(...)"
            fix = self._start(at, [float32]) or f"{fix}."
            raise self.error(at, f"the float {value!r} is used with {dtype}", fix)
        holds = f"it holds {dtype.min} to {dtype.max}"
        if dtype.is_float:
            holds = f"it holds up to {dtype.max}" if isinstance(value, float) else "not exactly"
        problem = f"{dtype} cannot hold {shown(value)} ({holds})"
        raise self.error(at, problem, instead(value, dtype))

    def unify(self, at: ast.AST, what: str, values: list[UOp | Number]) -> tuple[UOp, ...]:
        """Return operands as nodes of one dtype; at least one of them is typed already."""
        # A set, which is fast: every operation comes here, and only errors need the order.
        found = {part.dtype for part in values if isinstance(part, UOp)}
        if len(found) > 1:
            dtypes = list(dict.fromkeys(dtype_of(part) for part in values if isinstance(part, UOp)))
            first, second = dtypes[:2]
            wide = max(dtypes, key=_width)
            cast = f"Cast one: hal.{wide.__name__}({_other(at, values, wide)})."
            problem = f"{what} has operands of different dtypes, {first} and {second}"
            raise self.error(at, problem, self._start(at, dtypes) or cast)
        (dtype,) = found
        return tuple(
            [part if isinstance(part, UOp) else self._constant(at, part, dtype) for part in values]
        )

    def _start(self, at: ast.AST, dtypes: list[DType]) -> str | None:
        """Return the fix for a local that its first number made too narrow for one of `dtypes`."""
        for node in (at, *ast.iter_child_nodes(at)):
            if not isinstance(node, ast.Name) or node.id not in self.names.numbers:
                continue
            number, line = self.names.numbers[node.id]
            # For example `total = 0`, then `total = total + x[i]` with a float32 `x`.
            own = default_dtype(number)
            for dtype in dtypes:
                if (
                    dtype is not own
                    and _width(dtype) >= _width(own)
                    and number == fit(number, dtype)
                ):
                    short = "..."  # an infinity or a NaN
                    if math.isfinite(number):
                        short = repr(int(number) if number == int(number) else number)
                    return (
                        f"{node.id} is {own} since line {line} ({number!r}). "
                        f"Start with {node.id} = hal.{dtype.__name__}({short})."
                    )
        return None


def _other(at: ast.AST, values: list[UOp | Number], wide: DType) -> str:
    """Return the text of an operand that has not the dtype `wide`; `...` for a long one."""
    parts: list[ast.expr] = []
    if isinstance(at, ast.BinOp):
        parts = [at.left, at.right]
    elif isinstance(at, ast.Compare):
        parts = [at.left, *at.comparators]
    elif isinstance(at, ast.AugAssign):
        parts = [at.target, at.value]
    if len(parts) == len(values):
        for part, value in zip(parts, values, strict=True):
            if isinstance(value, UOp) and value.dtype is not wide:
                text = ast.unparse(part)
                return text if len(text) <= _LONGEST_TEXT else "..."
    return "..."


def _width(dtype: DType) -> tuple[bool, int]:
    return dtype.is_float, dtype.itemsize


def _describe(value: object) -> str:
    if isinstance(value, (UOp, Memory)):
        return "a kernel value"
    name = getattr(value, "__name__", None)
    kind = type(value).__name__
    return f"{name!r}" if name else f"{'an' if kind[0] in 'aeioAEIO' else 'a'} {kind}"

"""Lower operators, comparisons, `and or not` and `a if c else b`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from hal_core.dtypes import DType, bool_, float32, int32, int64
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import dtype_of
from hal_kernel.lang import refusals
from hal_kernel.lang.constants import Number, default_dtype, fit, fold
from hal_kernel.lang.expressions import Expressions

# syntax -> symbol, IR op, kinds of the dtypes it takes
BINARY: dict[type[ast.AST], tuple[str, str, str]] = {
    ast.Add: ("+", "ADD", "iuf"),
    ast.Sub: ("-", "SUB", "iuf"),
    ast.Mult: ("*", "MUL", "iuf"),
    ast.Div: ("/", "DIV", "f"),
    ast.FloorDiv: ("//", "FLOORDIV", "iu"),
    ast.Mod: ("%", "MOD", "iu"),
    ast.Pow: ("**", "POW", "f"),
    ast.LShift: ("<<", "SHL", "iu"),
    ast.RShift: (">>", "SHR", "iu"),
    ast.BitAnd: ("&", "AND", "iub"),
    ast.BitOr: ("|", "OR", "iub"),
    ast.BitXor: ("^", "XOR", "iub"),
}
COMPARISON: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "LT"),
    ast.LtE: ("<=", "LE"),
    ast.Gt: (">", "GT"),
    ast.GtE: (">=", "GE"),
    ast.Eq: ("==", "EQ"),
    ast.NotEq: ("!=", "NE"),
    ast.Is: ("is", ""),  # compares dtypes at compile time, so it has no op
    ast.IsNot: ("is not", ""),
}
_PRODUCTS = range(2, 9)  # powers that are written as products
_JOIN = "Join conditions with and, or; else put parentheses."


def binary_op(x: Expressions, node: ast.BinOp) -> Any:
    parts = (node.left, node.right)
    left, right = map(x.operand, parts, x.together(parts))
    return binary(x, node, node.op, left, right)


def binary(
    x: Expressions, at: ast.AST, operator: ast.operator, left: UOp | Number, right: UOp | Number
) -> Any:
    known = BINARY.get(type(operator))
    if known is None:
        raise x.error(at, "@ is not part of the kernel language", "Write the loop and the sum.")
    symbol, op, takes = known
    if not isinstance(left, UOp) and not isinstance(right, UOp):
        return _fold(x, at, symbol, left, right)
    if symbol == "**" and isinstance(left, UOp) and not isinstance(right, UOp):
        # In Python an integer to the power 2.0 is a float, and not a product of integers.
        is_product = dtype_of(left).is_float or isinstance(right, int)
        if is_product and right in _PRODUCTS:
            _check_kind(x, at, "*", dtype_of(left), "iuf")
            result = left
            for bit in f"{int(right):b}"[1:]:  # to the power 7: to the power 3, squared, times left
                result = x.emit.node("MUL", dtype_of(left), (result, result))
                if bit == "1":
                    result = x.emit.node("MUL", dtype_of(left), (result, left))
            return result
    if symbol in ("<<", ">>"):
        right = _amount(x, at, left, right)
    if symbol in "&|":
        dtypes = {dtype_of(part) for part in (left, right) if isinstance(part, UOp)}
        if bool_ in dtypes and len(dtypes) > 1:
            raise x.error(at, f"{symbol} joins two bools or two integers", _JOIN)
    if "f" not in takes:
        _refuse_floats(x, at, symbol, takes, [left, right])
    operands = x.unify(at, symbol, [left, right])
    dtype = dtype_of(operands[0])
    _check_kind(x, at, symbol, dtype, takes)
    return x.emit.node(op, dtype, operands)


def _amount(x: Expressions, at: ast.AST, left: UOp | Number, right: UOp | Number) -> UOp | Number:
    """Return the amount of a shift, in the dtype of what is shifted: only its low bits count."""
    if not isinstance(right, UOp):
        if right < 0:
            raise x.error(at, f"the shift {right!r} is negative", "Shift the other way.")
        return right
    if not isinstance(left, UOp) or left.dtype is right.dtype:
        return right
    integers = dtype_of(left).is_integer and dtype_of(right).is_integer
    return x.emit.node("CAST", left.dtype, (right,)) if integers else right


def _check_kind(x: Expressions, at: ast.AST, symbol: str, dtype: DType, takes: str) -> None:
    if dtype.kind in takes:
        return
    if dtype.is_float:
        fix = refusals.FLOAT_FIXES.get(symbol, "Cast first: hal.int32(a).")
    elif dtype.is_integer:
        fix = refusals.INTEGER_FIXES.get(symbol, "Cast first: hal.float32(a).")
    else:
        fix = refusals.BOOL_FIX
    raise x.error(at, f"{symbol} does not take {dtype}", fix)


def _refuse_floats(
    x: Expressions, at: ast.AST, symbol: str, takes: str, parts: list[UOp | Number]
) -> None:
    """Refuse floats of an integers' operator, before `unify` advises to cast the other operand."""
    for part in parts:
        if isinstance(part, UOp) and dtype_of(part).is_float:
            _check_kind(x, at, symbol, dtype_of(part), takes)
    for part in parts:
        if isinstance(part, float):
            fix = f"Write {int(part) if part.is_integer() else 'a whole number'}."
            raise x.error(at, f"{symbol} does not take the float {part!r}", fix)


def _fold(x: Expressions, at: ast.AST, symbol: str, left: Any, right: Any) -> Any:
    """Compute an operator of two constants, at compile time."""
    try:
        result = fold(symbol, left, right)
    except ZeroDivisionError:
        fix = "Correct it. With values known at run time only, // gives 0, and / an infinity."
        raise x.error(at, f"{symbol} divides a constant by zero", fix) from None
    except (ArithmeticError, ValueError, TypeError) as error:
        raise x.error(at, f"this constant cannot be computed: {error}", "Correct it.") from None
    if not isinstance(result, (int, float)):
        raise x.error(at, f"the constant is {result!r}, not a real number", "Correct its operands.")
    return result


def unary_op(x: Expressions, node: ast.UnaryOp) -> Any:
    if isinstance(node.op, ast.Not):
        truth = x.condition(node.operand)
        return x.emit.node("NOT", bool_, (truth,)) if isinstance(truth, UOp) else not truth
    value = x.operand(node.operand, x.expression(node.operand))
    if not isinstance(value, UOp):
        if isinstance(node.op, ast.Invert):
            # `~n` is `n ^ -1`.
            return _fold(x, node, "^", value, -1)
        return -value if isinstance(node.op, ast.USub) else +value
    dtype = dtype_of(value)
    if isinstance(node.op, ast.Invert):
        if dtype is bool_:
            raise x.error(node, "~ does not take bool", "Write not.")
        _check_kind(x, node, "~", dtype, "iu")
        return x.emit.node("NOT", dtype, (value,))
    _check_kind(x, node, "a sign", dtype, "iuf")
    return value if isinstance(node.op, ast.UAdd) else x.emit.node("NEG", dtype, (value,))


def comparison(x: Expressions, node: ast.Compare) -> Any:
    """Lower `a < b < c`, which computes b once, and c only where a < b."""
    # Checked before the operands are lowered: in `n in (1, 2)` the tuple would be refused first.
    if any(type(operator) not in COMPARISON for operator in node.ops):
        fix = "Write a == first or a == second."
        raise x.error(node, "in is not part of the kernel language", fix)
    # `i < n & i > 0` is `i < (n & i) > 0` in Python, and nobody means that.
    for part in (node.left, *node.comparators) if len(node.ops) > 1 else ():
        if isinstance(part, ast.BinOp) and isinstance(part.op, (ast.BitAnd, ast.BitOr)):
            symbol = BINARY[type(part.op)][0]
            if not x.text.in_brackets(part):
                raise x.error(part, f"{symbol} binds tighter than a comparison", _JOIN)
    left, previous = x.together((node.left, node.comparators[0]))
    if len(node.ops) == 1:
        return _compare(x, node, node.ops[0], left, previous)

    def link(operator: ast.cmpop, right: ast.expr) -> Any:
        nonlocal previous
        want = previous.dtype if isinstance(previous, UOp) else None
        left, previous = previous, x.expression(right, want)
        return _compare(x, node, operator, left, previous)

    first = partial(_compare, x, node, node.ops[0], left, previous)
    pairs = zip(node.ops[1:], node.comparators[1:], strict=True)
    return _shortcut(x, False, [first, *(partial(link, *pair) for pair in pairs)])


def _compare(x: Expressions, at: ast.AST, operator: ast.cmpop, left: Any, right: Any) -> Any:
    symbol, op = COMPARISON[type(operator)]
    if isinstance(left, DType) and isinstance(right, DType):
        # `if dtype is hal.float64:`
        return _fold(x, at, symbol, left, right)
    if not op:
        raise x.error(at, f"{symbol} compares dtypes only", "Write == or !=.")
    left, right = x.operand(at, left), x.operand(at, right)
    if not isinstance(left, UOp) and not isinstance(right, UOp):
        return _fold(x, at, symbol, left, right)
    return x.emit.node(op, bool_, x.unify(at, symbol, [left, right]))


def bool_op(x: Expressions, node: ast.BoolOp) -> Any:
    """Lower `and`, `or`. In Python `3 and x` gives x; here both operands must be bools."""

    def joined(part: ast.expr) -> UOp | bool:
        value = x.operand(part, x.expression(part))
        if isinstance(value, bool) or (isinstance(value, UOp) and value.dtype is bool_):
            return value
        shown = value.dtype if isinstance(value, UOp) else repr(value)
        raise x.error(part, f"and, or join bools, not {shown}", "Compare: a != 0 and b != 0.")

    parts: list[Callable[[], UOp | bool]] = [partial(joined, part) for part in node.values]
    return _shortcut(x, isinstance(node.op, ast.Or), parts)


def _shortcut(x: Expressions, decides: bool, parts: list[Callable[[], UOp | bool]]) -> UOp | bool:
    """Lower `and`, which False decides, or `or`, which True decides; the rest is not evaluated."""
    left = parts[0]()
    if len(parts) == 1 or left is decides:
        return left
    if not isinstance(left, UOp):
        return _shortcut(x, decides, parts[1:])

    def rest() -> UOp:
        value = _shortcut(x, decides, parts[1:])
        return value if isinstance(value, UOp) else x.emit.constant(value, bool_)

    # `a and b` is `b if a else False`, and `a or b` is `True if a else b`.
    tail = x.emit.capture(lambda: [rest()])
    decided = x.emit.capture(lambda: [x.emit.constant(decides, bool_)])
    return x.emit.choose(left, *((decided, tail) if decides else (tail, decided)))[0]


def choice(x: Expressions, node: ast.IfExp, want: DType | None) -> Any:
    """Lower `a if c else b`; as in Python, only one of the sides is evaluated."""
    condition = x.condition(node.test)
    if not isinstance(condition, UOp):
        return x.expression(node.body if condition else node.orelse, want)

    def side(part: ast.expr) -> list[UOp | Number]:
        return [x.operand(part, x.expression(part, want))]

    sides: list[Side] = [
        (part, *x.emit.capture(partial(side, part))) for part in (node.body, node.orelse)
    ]
    return join(x, condition, sides, want)[0]


# One side of a choice: its place in the text, its values, and the captured nodes they need.
Side = tuple[ast.AST, list[Any], list[UOp]]


def join(x: Expressions, condition: UOp, sides: list[Side], want: DType | None) -> list[UOp]:
    """Return the values of the first side where the condition holds, else those of the second."""
    dtypes = [
        common_dtype(x, [(at, values[k]) for at, values, _ in sides], want)
        for k in range(len(sides[0][1]))
    ]

    def typed(at: ast.AST, values: list[Any]) -> list[UOp]:
        pairs = zip(values, dtypes, strict=True)
        return [x.typed(at, x.operand(at, value), dtype) for value, dtype in pairs]

    results = []
    for at, values, nodes in sides:
        # A number becomes a constant inside its own side.
        made, constants = x.emit.capture(partial(typed, at, values))
        results.append((made, nodes + constants))
    return x.emit.choose(condition, *results)


def common_dtype(
    x: Expressions, values: list[tuple[ast.AST, Any]], want: DType | None = None
) -> DType:
    """Return the dtype of a value that takes one of several paths; each has its place."""
    operands = [x.operand(at, value) for at, value in values]
    numbers = [value for value in operands if not isinstance(value, UOp)]
    for value in operands:
        if isinstance(value, UOp):
            return dtype_of(value)
    if want and all(fit(value, want) is not None for value in numbers):
        return want
    known = {default_dtype(value) for value in numbers}
    return next(dtype for dtype in (float32, int64, int32, bool_) if dtype in known)

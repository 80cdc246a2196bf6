"""Lower calls: casts, thread indices, math functions and Python's min, max, abs, round."""

from __future__ import annotations

import ast
import builtins
import math
import struct
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

from hal_core.dtypes import (
    DTYPES,
    STORAGE_DTYPES,
    DType,
    bfloat16,
    bool_,
    float32,
    float64,
    int32,
    pack,
)
from hal_core.errors import shown
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import array_of, dtype_of
from hal_kernel.lang import memory, refusals, shapes, subgroups, vectors
from hal_kernel.lang.atomics import atomic
from hal_kernel.lang.builtins import (
    ATOMICS,
    SPECIALS,
    SUBGROUPS,
    barrier,
    bitcast,
    fence,
    load,
    load_if,
    local,
    print,
    shared,
    store,
    unroll,
    view,
)
from hal_kernel.lang.constants import COMPLEX, computed, convert, instead
from hal_kernel.lang.emit import Memory, Nothing
from hal_kernel.lang.expressions import Expressions
from hal_kernel.lang.func import InlineFunction
from hal_kernel.lang.function import KernelFunction
from hal_kernel.lang.inline import inline
from hal_kernel.lang.mathematics import MATH, MATH_NAMES, MathFunction

_FLOAT_FIX = "Cast first: hal.float32(x)."
_UNBOUNDED = (math.factorial, math.comb, math.perm)  # their results could fill memory
_NAMED = {"inf": "math.inf", "+inf": "math.inf", "-inf": "-math.inf", "nan": "math.nan"}
_INTEGER_FIX = "Cast first, hal.int32(x), or take the bits: hal.bitcast(hal.uint32, x)."


def call(x: Expressions, node: ast.Call) -> Any:
    """Lower a call. Which function is called is known at compile time."""
    if node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args):
        raise x.error(
            node, "a call may have plain arguments only", "Write each argument, without name or *."
        )
    function = x.expression(node.func)
    if isinstance(function, DType):
        return _cast(x, node, function)
    if not callable(function) or type(function).__hash__ is None:
        raise x.error(node, "what is called is not a function", "Correct the name.")
    if isinstance(function, InlineFunction):
        return inline(x, node, function)
    handler = _OWN.get(function)
    if handler is not None:
        return handler(x, node)
    if function in ATOMICS:
        return atomic(x, node, *ATOMICS[function])
    if function in SUBGROUPS:
        return subgroups.lowered(
            x, node, function.__name__, _arguments(x, node, SUBGROUPS[function])
        )
    if function in SPECIALS:
        kind = SPECIALS[function]
        (axis,) = _arguments(x, node, 1)
        if isinstance(axis, UOp) or axis not in (0, 1, 2) or isinstance(axis, float):
            problem = f"the axis of {kind} must be 0, 1 or 2"
            raise x.error(node, problem, f"Write hal.{kind}(0) for x.")
        if kind == "block_dim" and x.emit.block is not None:
            return x.emit.constant(x.emit.block[axis], int32)
        return x.emit.node("SPECIAL", int32, (), (kind, int(axis)))
    if function in MATH:
        return _math(x, node, MATH[function])
    if function in _PYTHON:
        return _PYTHON[function](x, node)
    return _constant_call(x, node, function)


def _arguments(x: Expressions, node: ast.Call, count: int | None) -> list[Any]:
    if count is not None and len(node.args) != count:
        from inspect import signature  # here: it takes longer than all of hal_core

        name = ast.unparse(node.func)
        names = list(signature(x.expression(node.func)).parameters)[:count]
        problem = f"{name} takes {count} argument(s), not {len(node.args)}"
        raise x.error(node, problem, f"Write {name}({', '.join(names)}).")
    return list(map(x.operand, node.args, x.together(node.args)))


def _cast(x: Expressions, node: ast.Call, dtype: DType) -> UOp:
    if dtype.kind == "c":
        raise x.error(node, f"{dtype} is not part of the kernel language", COMPLEX)
    if dtype.name not in DTYPES:
        raise x.error(node, f"{dtype} is not the dtype of a value", "Write hal.float32(x).")
    if len(node.args) != 1:
        raise x.error(
            node,
            f"a cast takes 1 argument, not {len(node.args)}",
            f"Write hal.{dtype.__name__}(x).",
        )
    (argument,) = node.args
    result = computed(dtype)
    value = x.operand(argument, x.expression(argument, result))
    if not isinstance(value, UOp):
        constant = convert(value, dtype)
        if constant is None and value != value:
            fix = "Write the number that is meant; a NaN that is found at run time gives 0."
            raise x.error(node, f"NaN is no {dtype}", fix)
        if constant is None:
            limits = f"it holds {dtype.min} to {dtype.max}"
            problem = f"{dtype} cannot hold {shown(value)} ({limits})"
            raise x.error(node, problem, instead(value, dtype))
        if dtype in STORAGE_DTYPES:
            data = pack(constant, dtype)
            if dtype is bfloat16:  # the upper half of a float32
                data = struct.pack("=I", int.from_bytes(data, sys.byteorder) << 16)
            (constant,) = struct.unpack(f"={dtype.format or 'f'}", data)
        return x.emit.constant(constant, result)
    if dtype in STORAGE_DTYPES:
        value = x.emit.node("CAST", dtype, (_before_rounding(x, value, dtype),))
    return value if value.dtype is result else x.emit.node("CAST", result, (value,))


def _before_rounding(x: Expressions, value: UOp, dtype: DType) -> UOp:
    """Return a value as the float32 whose rounding to 16 bits is the only one."""
    # From 2**16 on an integer becomes an infinite float16, so only a bfloat16 sees the last bits.
    inexact = value.dtype is float64 or (dtype is bfloat16 and dtype_of(value).itemsize >= 4)
    if value.dtype is float32:
        return value
    if not inexact:
        return x.emit.node("CAST", float32, (value,))
    from hal_kernel.ir.math.rounding import to_odd

    return _written_out(x, to_odd, (value,))


def lower_bitcast(x: Expressions, node: ast.Call) -> UOp | Memory:
    fix = "Write hal.bitcast(hal.int32, x), with an x of 32 bits."
    if len(node.args) != 2:
        raise x.error(node, f"bitcast takes 2 arguments, not {len(node.args)}", fix)
    dtype, value = x.expression(node.args[0]), x.expression(node.args[1])
    if not isinstance(dtype, DType) or dtype.name not in DTYPES:
        written, last = map(ast.unparse, node.args)
        if isinstance(value, DType):
            fix = f"Write hal.bitcast({last}, {written})."
        raise x.error(node.args[0], f"{written} is not a dtype", fix)
    if not isinstance(value, Memory):
        value = x.settled(node.args[1], value, None)
    if isinstance(value, Memory):
        if value.node.op == "LOCAL":
            written = ast.unparse(node.args[1])
            fix = f"Take the bits of each element: hal.bitcast(hal.{dtype.__name__}, {written}[i])."
            raise x.error(node, "the elements of a local array have one dtype", fix)
        node_of = x.emit.view(array_of(value.node), dtype)
        offset = shapes.rescaled(x, node, value, dtype)
        return Memory(value.name, node_of, value.const, None, offset, value.origin)
    # The value of `hal.float16(x)` or `p[i]` is a float32; two bytes are those of what it was.
    is_written_so = value.op == "CAST" and isinstance(node.args[1], (ast.Call, ast.Subscript))
    if dtype.itemsize == 2 and is_written_so and value.src[0].dtype in STORAGE_DTYPES:
        value = value.src[0]
    elif dtype.itemsize == 2 and value.op == "CONST" and isinstance(node.args[1], ast.Call):
        kind = x.expression(node.args[1].func)
        value = x.emit.node("CAST", kind, (value,)) if kind in STORAGE_DTYPES else value
    source = dtype_of(value)
    if bool_ in (dtype, source):  # its bits are not the same on all devices
        raise x.error(node, "bitcast does not take bool", "Write hal.int32(x), or x != 0.")
    if source.itemsize != dtype.itemsize:
        wide = f"{dtype} has {8 * dtype.itemsize} bits, {source} {8 * source.itemsize}"
        problem = f"bitcast gives as many bits as it takes: {wide}"
        fix = "Cast to a dtype of that width first."
        if source is float32 and dtype.itemsize == 2:
            fix = f"Round it first: hal.bitcast(hal.{dtype.__name__}, hal.float16(x))."
        raise x.error(node, problem, fix)
    value = value if source is dtype else x.emit.node("BITCAST", dtype, (value,))
    return x.emit.node("CAST", float32, (value,)) if dtype in STORAGE_DTYPES else value


def lower_load_if(x: Expressions, node: ast.Call) -> UOp:
    if len(node.args) != 4:
        fix = "Write hal.load_if(i < n, p, i, 0)."
        raise x.error(node, f"load_if takes 4 arguments, not {len(node.args)}", fix)
    condition, label, index, otherwise = node.args
    gate = x.condition(condition)
    array = memory.named(x, node, x.expression(label), label, stored=False)
    place = shapes.flat(x, node, array, index, gate=gate)
    return memory.load_if(x, gate, array, place, otherwise)


def lower_view(x: Expressions, node: ast.Call) -> Memory:
    if len(node.args) != 2:
        problem = f"view takes 2 arguments, not {len(node.args)}"
        raise x.error(node, problem, shapes.VIEW)
    label, shape = node.args
    array = memory.named(x, node, x.expression(label), label, stored=False)
    return shapes.view(x, shape, array)


def lower_barrier(x: Expressions, node: ast.Call) -> Nothing:
    _arguments(x, node, 0)
    # The place is for the error that not all threads reach it; the text may be an inlined function.
    x.emit.together[id(x.emit.node("BARRIER"))] = x.text, node
    return Nothing("hal.barrier()")


def lower_fence(x: Expressions, node: ast.Call) -> Nothing:
    _arguments(x, node, 0)
    x.emit.node("FENCE")
    return Nothing("hal.fence()")


def lower_print(x: Expressions, node: ast.Call) -> Nothing:
    """Lower `hal.print("x =", x)` to a line of text with places for the values."""
    template, values = [], []
    for part in node.args:
        value = part.value if isinstance(part, ast.Constant) else x.expression(part)
        if not isinstance(value, str):
            value = x.operand(part, value)
        if isinstance(value, UOp):
            template.append("{}")
            values.append(value)
        else:
            template.append(str(value).replace("{", "{{").replace("}", "}}"))
    x.emit.line = x.text.mark(node)
    x.emit.node("PRINT", None, tuple(values), " ".join(template))
    return Nothing("hal.print")


def lower_array(x: Expressions, node: ast.Call) -> NoReturn:
    name = ast.unparse(node.func)
    fix = f"Write tile = {name}(...) on a line of its own, and index tile."
    raise x.error(node, f"{name} declares an array, and has no value", fix)


def _math(x: Expressions, node: ast.Call, function: MathFunction) -> Any:
    values = _arguments(x, node, function.arguments)
    if not any(isinstance(value, UOp) for value in values):
        return _python(x, node, function.fold, values)
    name = function.op.lower()
    operands = x.unify(node, name, values)
    dtype = operands[0].dtype
    if function.integers and (dtype is None or not dtype.is_integer):
        raise x.error(node, f"{name} takes integers, not {dtype}", _INTEGER_FIX)
    if not function.integers and (dtype is None or not dtype.is_float):
        raise x.error(node, f"{name} takes floats, not {dtype}", _FLOAT_FIX)
    if function.derived:
        from hal_kernel.ir.math import (
            DERIVED,  # few kernels need them, and they take long to import
        )

        return _written_out(x, DERIVED[function.op], operands)
    result = bool_ if function.op == "ISNAN" else dtype
    return x.emit.node(function.op, result, operands)


def _written_out(x: Expressions, formula: Callable[..., Any], operands: tuple[UOp, ...]) -> UOp:
    """Write a function that is no operation of the IR as arithmetic; return its value."""
    from hal_kernel.ir.math.value import Page, Value

    page, before = Page(x.emit.uops, x.emit.line), len(x.emit.uops)
    value: Value = formula(*(Value(operand, page) for operand in operands))
    x.emit.made += len(x.emit.uops) - before
    return value.node


def _python(x: Expressions, node: ast.Call, function: Callable[..., Any], values: list[Any]) -> Any:
    """Call a Python function with constants, at compile time."""
    try:
        return function(*values)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise x.error(node, f"this constant cannot be computed: {error}", "Correct it.") from None


def _extreme(op: str, function: Callable[..., Any]) -> Callable[[Expressions, ast.Call], Any]:
    def lower_extreme(x: Expressions, node: ast.Call) -> Any:
        values = _arguments(x, node, None)
        if not any(isinstance(value, UOp) for value in values):
            return _python(x, node, function, values)
        if len(values) < 2:
            raise x.error(node, f"{op.lower()} takes two values or more", "Loop over elements.")
        operands = x.unify(node, op.lower(), values)
        result = operands[0]
        if result.dtype is bool_:
            raise x.error(node, f"{op.lower()} does not take bool", "Write and, or.")
        for operand in operands[1:]:
            result = x.emit.node(op, result.dtype, (result, operand))
        return result

    return lower_extreme


def lower_abs(x: Expressions, node: ast.Call) -> Any:
    (value,) = _arguments(x, node, 1)
    if not isinstance(value, UOp):
        return abs(value)
    if value.dtype is bool_:
        raise x.error(node, "abs does not take bool", refusals.BOOL_FIX)
    return x.emit.node("ABS", value.dtype, (value,))


def lower_round(x: Expressions, node: ast.Call) -> Any:
    """Lower `round`, which gives the nearest whole number as a float; halves go to the even one."""
    (value,) = _arguments(x, node, 1)
    if not isinstance(value, UOp):
        return _python(x, node, lambda v: math.copysign(round(v), v), [value])
    if value.dtype is None or not value.dtype.is_float:
        raise x.error(node, f"round takes a float, not {value.dtype}", "Leave it out.")
    return x.emit.node("ROUND", value.dtype, (value,))


def _constant_call(x: Expressions, node: ast.Call, function: Callable[..., Any]) -> Any:
    """Call one of Python's own functions with constants; refuse any other call."""
    name = getattr(function, "__name__", type(function).__name__)
    is_math = getattr(function, "__module__", None) == "math" and function not in _UNBOUNDED
    if is_math or function in (builtins.len, builtins.int, builtins.float, builtins.bool):
        texts = [part.value for part in node.args if isinstance(part, ast.Constant)]
        if any(isinstance(text, str) for text in texts):  # float("inf")
            fix = f"Write {_NAMED.get(str(texts[0]).strip().lower(), 'the number itself')}."
            raise x.error(node, f"{ast.unparse(node)} is not part of the kernel language", fix)
        values = [x.expression(argument) for argument in node.args]
        if all(isinstance(value, (int, float, tuple)) for value in values):
            return _python(x, node, function, values)
    if function is getattr(builtins, name, None) and name in refusals.CALLS:
        raise x.error(node, f"{name} is not part of the kernel language", refusals.CALLS[name])
    # A function that the kernel's own module defines is the user's, whatever its name.
    if getattr(function, "__module__", None) != x.names.function.__module__:
        _check_foreign(x, node, name)
    if name in MATH_NAMES:
        problem = f"this {name} is not part of the kernel language"
        raise x.error(node, problem, f"Write hal.{name}(...).")
    if isinstance(function, KernelFunction):
        fix = "Put what both do into a function with @hal.func."
        raise x.error(node, f"the kernel {name} cannot be called", fix)
    if function is unroll:
        raise x.error(node, "hal.unroll is for loops only", "Write for k in hal.unroll(4):.")
    if refusals.is_own(function):
        fix = refusals.uncalled(function, ast.unparse(node.func))
        raise x.error(node, f"{ast.unparse(node.func)} is not called in a kernel", fix)
    if isinstance(function, FunctionType):
        fix = f"Put @hal.func above def {name}."
        if name == "<lambda>":
            fix = "Write it as a def, with @hal.func above it."
        raise x.error(node, f"the function {name} is not part of the kernel language", fix)
    raise x.error(
        node,
        f"the function {name} is not part of the kernel language",
        "Write its expression here, with operators and hal functions.",
    )


def _check_foreign(x: Expressions, node: ast.Call, name: str) -> None:
    """Refuse another library's cast, minimum or barrier, and say what to write instead."""
    dtype = DTYPES.get(name.rstrip("_"))
    fix = refusals.foreign(name)
    if dtype is not None:
        fix = f"Write hal.{dtype.__name__}({', '.join(map(ast.unparse, node.args))})."
    if fix is not None:
        problem = f"{ast.unparse(node.func)} is not part of the kernel language"
        raise x.error(node, problem, fix)


_OWN: dict[Callable[..., Any], Callable[[Expressions, ast.Call], Any]] = {
    barrier: lower_barrier,
    bitcast: lower_bitcast,
    fence: lower_fence,
    load: vectors.load,
    load_if: lower_load_if,
    local: lower_array,
    print: lower_print,
    shared: lower_array,
    store: vectors.store,
    view: lower_view,
}
_PYTHON: dict[Callable[..., Any], Callable[[Expressions, ast.Call], Any]] = {
    builtins.min: _extreme("MIN", builtins.min),
    builtins.max: _extreme("MAX", builtins.max),
    builtins.abs: lower_abs,
    builtins.round: lower_round,
}

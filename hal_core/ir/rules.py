"""What each kind of IR node must be: one rule an op, in the table at the end."""

from __future__ import annotations

from collections.abc import Callable

from hal_core.dtypes import DType, bool_, int32
from hal_core.ir.signature import CONST_POINTER, Param
from hal_core.ir.uop import (
    ARITHMETIC,
    BITWISE,
    COMPARISON,
    FLOAT_BINARY,
    FLOAT_UNARY,
    INTEGER_BINARY,
    SPECIALS,
    Kernel,
    UOp,
)

_NOT_VALUES = frozenset({"SET", "STORE", "VAR", "IF", "ELSE", "ENDIF", "ENDRANGE"})

# A rule says what is wrong, or nothing. The number of sources is checked before.
Rule = Callable[[UOp, Kernel], "str | None"]


def _is_pointer(node: UOp, kernel: Kernel) -> bool:
    return node.op == "PARAM" and kernel.signature.params[node.arg].is_pointer


def _values(node: UOp, kernel: Kernel, *sources: UOp) -> str | None:
    for source in sources:
        if source.op in _NOT_VALUES or _is_pointer(source, kernel):
            return f"{source!r} is not a value"
    return None


def _operands(takes: str, result: DType | None = None) -> Rule:
    """Operands of one dtype, whose kind is one letter of `takes`."""

    def rule(node: UOp, kernel: Kernel) -> str | None:
        problem = _values(node, kernel, *node.src)
        if problem:
            return problem
        dtypes = {source.dtype for source in node.src}
        (dtype, *others) = dtypes
        if others or dtype is None:
            names = " and ".join(str(source.dtype) for source in node.src)
            return f"its operands have one dtype, not {names}"
        if dtype.kind not in takes:
            return f"{node.op} does not take {dtype.name}"
        if node.dtype is not (result or dtype):
            return f"its dtype is {(result or dtype).name}"
        return None

    return rule


def _param(node: UOp, kernel: Kernel) -> str | None:
    params = kernel.signature.params
    if not isinstance(node.arg, int) or not 0 <= node.arg < len(params):
        return f"arg is a position in the signature, which has {len(params)} parameters"
    param: Param = params[node.arg]
    return None if node.dtype is param.dtype else f"the signature says {param}"


def _const(node: UOp, kernel: Kernel) -> str | None:
    dtype, value = node.dtype, node.arg
    if dtype is None:
        return "a constant has a dtype"
    if dtype.kind == "f":
        return None if isinstance(value, (int, float)) else "arg is a number"
    if not isinstance(value, int):
        return "arg is an int"
    return None if dtype.min <= value <= dtype.max else f"{dtype.name} cannot hold it"


def _special(node: UOp, kernel: Kernel) -> str | None:
    if node.dtype is not int32:
        return "its dtype is int32"
    if not isinstance(node.arg, tuple) or len(node.arg) != 2 or node.arg[0] not in SPECIALS:
        return f"arg is (kind, axis), kind one of {', '.join(SPECIALS)}"
    return None if node.arg[1] in (0, 1, 2) else "the axis is 0, 1 or 2"


def _var(node: UOp, kernel: Kernel) -> str | None:
    return "a variable has a dtype" if node.dtype is None else None


def _set(node: UOp, kernel: Kernel) -> str | None:
    variable, value = node.src
    if variable.op != "VAR":
        return "its first source is a VAR"
    if value.dtype is not variable.dtype:
        return f"the variable is {variable.dtype}, the value {value.dtype}"
    return _values(node, kernel, value) or _no_dtype(node)


def _get(node: UOp, kernel: Kernel) -> str | None:
    variable = node.src[0]
    if variable.op != "VAR":
        return "its source is a VAR"
    return None if node.dtype is variable.dtype else f"its dtype is {variable.dtype}"


def _cast(node: UOp, kernel: Kernel) -> str | None:
    return "a cast has a dtype" if node.dtype is None else _values(node, kernel, node.src[0])


def _where(node: UOp, kernel: Kernel) -> str | None:
    condition, first, second = node.src
    if condition.dtype is not bool_:
        return "its first source is a bool"
    if not first.dtype is second.dtype is node.dtype or node.dtype is None:
        return f"both values and the node have one dtype, not {first.dtype} and {second.dtype}"
    return _values(node, kernel, *node.src)


def _element(node: UOp, kernel: Kernel) -> str | None:
    pointer, index = node.src[:2]
    if not _is_pointer(pointer, kernel):
        return "its first source is a PARAM that is a pointer"
    if index.dtype is None or not index.dtype.is_integer:
        return f"the index is an integer, not {index.dtype}"
    return _values(node, kernel, index)


def _load(node: UOp, kernel: Kernel) -> str | None:
    problem = _element(node, kernel)
    if problem:
        return problem
    dtype = node.src[0].dtype
    return None if node.dtype is dtype else f"its dtype is the element's, {dtype}"


def _store(node: UOp, kernel: Kernel) -> str | None:
    problem = _element(node, kernel)
    if problem:
        return problem
    pointer, _, value = node.src
    param = kernel.signature.params[pointer.arg]
    if param.kind == CONST_POINTER:
        return f"{param} is only read"
    if value.dtype is not param.dtype:
        return f"the elements are {param.dtype}, the value {value.dtype}"
    return _values(node, kernel, value) or _no_dtype(node)


def _range(node: UOp, kernel: Kernel) -> str | None:
    step = node.src[2]
    if step.op != "CONST" or step.arg == 0:
        return "the step is a CONST, not 0"
    return _operands("iu")(node, kernel)


def _if(node: UOp, kernel: Kernel) -> str | None:
    if node.src[0].dtype is not bool_:
        return "the condition is a bool"
    return _values(node, kernel, node.src[0]) or _no_dtype(node)


def _closes(opener: str) -> Rule:
    def rule(node: UOp, kernel: Kernel) -> str | None:
        return _no_dtype(node) if node.src[0].op == opener else f"its source is an {opener}"

    return rule


def _no_dtype(node: UOp) -> str | None:
    return None if node.dtype is None else f"{node.op} has no dtype"


RULES: dict[str, Rule] = {
    "PARAM": _param,
    "CONST": _const,
    "SPECIAL": _special,
    "VAR": _var,
    "SET": _set,
    "GET": _get,
    "CAST": _cast,
    **dict.fromkeys(ARITHMETIC | {"NEG", "ABS"}, _operands("iuf")),
    **dict.fromkeys(FLOAT_BINARY | FLOAT_UNARY | {"FMA"}, _operands("f")),
    **dict.fromkeys(INTEGER_BINARY, _operands("iu")),
    **dict.fromkeys(BITWISE | {"NOT"}, _operands("iub")),
    **dict.fromkeys(COMPARISON, _operands("iufb", result=bool_)),
    "ISNAN": _operands("f", result=bool_),
    "WHERE": _where,
    "LOAD": _load,
    "STORE": _store,
    "RANGE": _range,
    "ENDRANGE": _closes("RANGE"),
    "IF": _if,
    "ELSE": _closes("IF"),
    "ENDIF": _closes("IF"),
}

# How many sources a node has; the ops that are not here have two.
SOURCE_COUNTS = {
    **dict.fromkeys(("PARAM", "CONST", "SPECIAL", "VAR"), 0),
    **dict.fromkeys(FLOAT_UNARY | {"NEG", "ABS", "NOT", "GET", "CAST", "IF"}, 1),
    **dict.fromkeys(("ENDRANGE", "ELSE", "ENDIF"), 1),
    **dict.fromkeys(("WHERE", "FMA", "STORE", "RANGE"), 3),
}

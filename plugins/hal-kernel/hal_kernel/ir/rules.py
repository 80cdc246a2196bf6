"""The rules of the IR: one function for each kind of node, in the table RULES at the end.

A rule returns what is wrong with a node, as text for an error, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hal_core.dtypes import STORAGE_DTYPES, DType, any_, bool_, float32, int32, uint64
from hal_core.signature import CONST_POINTER, Param
from hal_kernel.ir.uop import (
    ARITHMETIC,
    ATOMIC_OPS,
    ATOMICS,
    BITWISE,
    COMPARISON,
    FLOAT_BINARY,
    FLOAT_UNARY,
    INTEGER_BINARY,
    ORDERS,
    SPECIALS,
    STRUCTURE,
    SUBGROUP,
    VECTORS,
    Kernel,
    UOp,
    array_of,
    atomic_name,
    is_gated,
)

_NOT_VALUES = (STRUCTURE - {"RANGE"}) | {
    "SET", "STORE", "ATOMICSTORE", "VAR", "SHARED", "LOCAL", "TABLE", "VIEW", "BARRIER", "FENCE",
    "ASSERT", "PRINT",
}  # fmt: skip

_MEMORY = ("SHARED", "LOCAL", "TABLE", "VIEW")  # beside a PARAM that is a pointer
_LANES = frozenset((lane, count) for count in VECTORS for lane in range(count))

# Returns the problem with a node of a kernel. The number of sources has been checked before.
Rule = Callable[[UOp, Kernel], "str | None"]


def _is_pointer(node: UOp, kernel: Kernel) -> bool:
    return node.op == "PARAM" and kernel.signature.params[node.arg].is_pointer


def _values(kernel: Kernel, sources: Sequence[UOp]) -> str | None:
    """Refuse a source that has no value: structure, a store, memory."""
    for source in sources:
        op = source.op
        if op in _NOT_VALUES or (op == "PARAM" and _is_pointer(source, kernel)):
            return f"{source!r} is not a value"
    return None


def _operands(takes: str, result: DType | None = None) -> Rule:
    """Return the rule for operands of one dtype, whose kind is a letter of `takes`, as in numpy."""

    def rule(node: UOp, kernel: Kernel) -> str | None:
        problem = _values(kernel, node.src)
        if problem:
            return problem
        dtype = node.src[0].dtype
        if dtype is None or len({source.dtype for source in node.src}) > 1:
            names = " and ".join(str(source.dtype) for source in node.src)
            return f"its operands must have one dtype, not {names}"
        if dtype.kind not in takes or dtype in STORAGE_DTYPES:
            return f"{node.op} does not take {dtype.name}"
        if node.dtype is not (result or dtype):
            return f"its dtype must be {(result or dtype).name}"
        return None

    return rule


def param(node: UOp, kernel: Kernel) -> str | None:
    params = kernel.signature.params
    if not isinstance(node.arg, int) or not 0 <= node.arg < len(params):
        return f"arg must be a position in the signature, which has {len(params)} parameters"
    declared: Param = params[node.arg]
    if not declared.is_pointer and declared.dtype in STORAGE_DTYPES:
        return f"{declared.dtype} is for memory; a value is a float32"
    return None if node.dtype is declared.dtype else f"the signature says {declared}"


def const(node: UOp, kernel: Kernel) -> str | None:
    dtype, value = node.dtype, node.arg
    if dtype is None or dtype in STORAGE_DTYPES:
        return "a constant must have a dtype that kernels compute with"
    if dtype.kind == "f":
        return None if isinstance(value, (int, float)) else "arg must be a number"
    if not isinstance(value, int):
        return "arg must be an int"
    return None if dtype.min <= value <= dtype.max else f"{dtype.name} cannot hold it"


def special(node: UOp, kernel: Kernel) -> str | None:
    if node.dtype is not int32:
        return "its dtype must be int32"
    kinds = SPECIALS + SUBGROUP
    if not isinstance(node.arg, tuple) or len(node.arg) != 2 or node.arg[0] not in kinds:
        return f"arg must be (kind, axis), kind one of {', '.join(kinds)}"
    if node.arg[0] in SUBGROUP:
        return None if node.arg[1] == 0 else "the axis must be 0"
    return None if node.arg[1] in (0, 1, 2) else "the axis must be 0, 1 or 2"


def var(node: UOp, kernel: Kernel) -> str | None:
    if node.dtype is None or node.dtype in STORAGE_DTYPES:
        return "a variable must have a dtype that kernels compute with"
    return None


def set_(node: UOp, kernel: Kernel) -> str | None:
    variable, value = node.src
    if variable.op != "VAR":
        return "its first source must be a VAR"
    if value.dtype is not variable.dtype:
        return f"the variable is {variable.dtype}, the value {value.dtype}"
    return _values(kernel, (value,)) or _no_dtype(node)


def get(node: UOp, kernel: Kernel) -> str | None:
    variable = node.src[0]
    if variable.op != "VAR":
        return "its source must be a VAR"
    return None if node.dtype is variable.dtype else f"its dtype must be {variable.dtype}"


def cast(node: UOp, kernel: Kernel) -> str | None:
    problem = _values(kernel, node.src)
    if problem or node.dtype is None:
        return problem or "a cast must have a dtype"
    ends = (node.src[0].dtype, node.dtype)
    if any(dtype in STORAGE_DTYPES for dtype in ends) and float32 not in ends:
        return f"{ends[0]} to {ends[1]} must go through float32"
    return None


def bitcast(node: UOp, kernel: Kernel) -> str | None:
    problem = _values(kernel, node.src)
    ends = (node.src[0].dtype, node.dtype)
    if problem or None in ends:
        return problem or "a bitcast must have a dtype"
    if bool_ in ends:
        return "BITCAST does not take bool"
    widths = {dtype.itemsize for dtype in ends if dtype}
    return None if len(widths) == 1 else f"{ends[0]} and {ends[1]} have different widths"


def where(node: UOp, kernel: Kernel) -> str | None:
    condition, first, second = node.src
    if condition.dtype is not bool_:
        return "its first source must be a bool"
    if node.dtype in STORAGE_DTYPES:
        return f"WHERE does not take {node.dtype}"
    if not first.dtype is second.dtype is node.dtype or node.dtype is None:
        return f"both values and the node must have one dtype, not {first.dtype} and {second.dtype}"
    return _values(kernel, node.src)


def shared(node: UOp, kernel: Kernel) -> str | None:
    if node.dtype is None:
        return "an array must have a dtype"
    if not isinstance(node.arg, tuple) or len(node.arg) != 2 or type(node.arg[1]) is not int:
        return "arg must be (name, number of elements)"
    return None if 0 < node.arg[1] < 2**31 else "it must have one element or more"


def table(node: UOp, kernel: Kernel) -> str | None:
    dtype = node.dtype
    if dtype is None or dtype is any_ or dtype in STORAGE_DTYPES:
        return "a table must have a dtype that kernels compute with"
    if not isinstance(node.arg, tuple) or len(node.arg) != 2 or not isinstance(node.arg[1], tuple):
        return "arg must be (name, a tuple of numbers)"
    if not node.arg[1]:
        return "it must have one element or more"
    for value in node.arg[1]:
        if dtype.is_float and not (isinstance(value, (int, float)) and math.isfinite(value)):
            return f"{value!r} is no finite number"
        if not dtype.is_float and not (isinstance(value, int) and dtype.min <= value <= dtype.max):
            return f"{dtype.name} cannot hold {value!r}"
    return None


def view(node: UOp, kernel: Kernel) -> str | None:
    array = node.src[0]
    if array.op != "SHARED" and not _is_pointer(array, kernel):
        return "its source must be a PARAM that is a pointer, or a SHARED"
    return None if node.dtype else "a view must have a dtype"


def _element(node: UOp, kernel: Kernel) -> str | None:
    """Check the memory and the index of a node that accesses an element."""
    memory, index = node.src[:2]
    if memory.op not in _MEMORY and not _is_pointer(memory, kernel):
        return "its first source must be a PARAM that is a pointer, a SHARED, a LOCAL or a VIEW"
    if memory.dtype is any_:
        return "its memory has no dtype: it must be a VIEW of it"
    if index.dtype is None or not index.dtype.is_integer:
        return f"the index must be an integer, not {index.dtype}"
    return _values(kernel, (index,))


def _lane(node: UOp) -> str | None:
    """Check the arg of a LOAD or STORE, which is None or its place in a vector."""
    if node.arg is None:
        return None
    if node.src[0].op in ("LOCAL", "TABLE") or is_gated(node):
        return "a vector is of a PARAM, a SHARED or a VIEW, and has no condition"
    if not isinstance(node.arg, tuple) or node.arg not in _LANES:
        return f"arg must be (k, n), n one of {', '.join(map(str, VECTORS))}, and k less than n"
    return None


def load(node: UOp, kernel: Kernel) -> str | None:
    problem = _element(node, kernel) or _lane(node)
    if problem:
        return problem
    dtype = node.src[0].dtype
    if is_gated(node):
        condition, otherwise = node.src[2:]
        if condition.dtype is not bool_:
            return "its third source must be a bool"
        if otherwise.dtype is not dtype:
            return f"the elements are {dtype}, the value {otherwise.dtype}"
        problem = _values(kernel, (condition, otherwise))
    if problem:
        return problem
    return None if node.dtype is dtype else f"its dtype must be the element's, {dtype}"


def _written(node: UOp, kernel: Kernel) -> str | None:
    """Check the memory, the index and the values of a node that writes an element."""
    problem = _element(node, kernel)
    if problem:
        return problem
    memory, _, *values = node.src
    array = array_of(memory)
    if array.op == "TABLE":
        return "a TABLE is only read"
    if array.op == "PARAM" and kernel.signature.params[array.arg].kind == CONST_POINTER:
        return f"{kernel.signature.params[array.arg]} is only read"
    for value in values:
        if value.dtype is not memory.dtype:
            return f"the elements are {memory.dtype}, the value {value.dtype}"
    return _values(kernel, values)


def store(node: UOp, kernel: Kernel) -> str | None:
    return _written(node, kernel) or _lane(node) or _no_dtype(node)


def atomic(node: UOp, kernel: Kernel) -> str | None:
    op, dtype = node.op, node.src[0].dtype
    problem = (_element if op == "ATOMICLOAD" else _written)(node, kernel)
    if problem or dtype is None:
        return problem
    if node.src[0].op in ("LOCAL", "TABLE"):
        return f"no other thread changes a {node.src[0].op}, so it takes no atomic"
    known = sorted(ATOMICS) if op == "ATOMIC" else ORDERS.get(op, (None,))
    if node.arg not in known:
        return f"arg must be one of {', '.join(map(str, known))}"
    floats = op in ORDERS or node.arg in ("ADD", "EXCHANGE")
    if dtype.itemsize < 4 or not (dtype.is_integer or (dtype.is_float and floats)):
        return f"no atomic {atomic_name(node)} of {dtype}"
    if op == "ATOMICSTORE":
        return _no_dtype(node)
    return None if node.dtype is dtype else f"its dtype must be the element's, {dtype}"


def shuffle(node: UOp, kernel: Kernel) -> str | None:
    value, lane = node.src
    if value.dtype is None or value.dtype.itemsize < 4 or value.dtype is not node.dtype:
        return f"the value and the node must have one dtype of 32 or 64 bits, not {value.dtype}"
    if lane.dtype is not int32:
        return f"the thread must be an int32, not {lane.dtype}"
    return _values(kernel, (value, lane))


def ballot(node: UOp, kernel: Kernel) -> str | None:
    if node.src[0].dtype is not bool_ or node.dtype is not uint64:
        return "it takes a bool, and its dtype must be uint64"
    return _values(kernel, node.src)


def range_(node: UOp, kernel: Kernel) -> str | None:
    step = node.src[2]
    if step.op != "CONST" or step.arg == 0:
        return "the step must be a CONST other than 0"
    return _operands("iu")(node, kernel)


def if_(node: UOp, kernel: Kernel) -> str | None:
    if node.src[0].dtype is not bool_:
        return "the condition must be a bool"
    return _values(kernel, node.src) or _no_dtype(node)


def print_(node: UOp, kernel: Kernel) -> str | None:
    try:
        node.arg.format(*node.src)
    except (AttributeError, LookupError, ValueError):
        return "arg must be text with a {} for each source"
    return _values(kernel, node.src) or _no_dtype(node)


def assert_(node: UOp, kernel: Kernel) -> str | None:
    if node.src[0].dtype is bool_ and len(node.src) == 1:
        return if_(node, kernel)
    dtype = node.src[0].dtype
    if dtype is None or not dtype.is_integer:
        return f"it tests a bool or an integer, not {dtype}"
    if node.src[-1].dtype is not dtype:
        return f"the index is {dtype}, the extent {node.src[-1].dtype}"
    return _values(kernel, node.src) or _no_dtype(node)


def _closes(opener: str) -> Rule:
    """Return the rule for nodes whose source is a node of the op `opener`."""

    def rule(node: UOp, kernel: Kernel) -> str | None:
        what = f"{'an' if opener == 'IF' else 'a'} {opener}"
        return _no_dtype(node) if node.src[0].op == opener else f"its source must be {what}"

    return rule


def leaves(node: UOp, kernel: Kernel) -> str | None:
    return _no_dtype(node) if node.src[0].op in ("RANGE", "LOOP") else "its source must be a loop"


def plain(node: UOp, kernel: Kernel) -> str | None:
    return _no_dtype(node)


def _no_dtype(node: UOp) -> str | None:
    return None if node.dtype is None else f"{node.op} has no dtype"


RULES: dict[str, Rule] = {
    "PARAM": param,
    "CONST": const,
    "SPECIAL": special,
    "VAR": var,
    "SET": set_,
    "GET": get,
    "CAST": cast,
    "BITCAST": bitcast,
    **dict.fromkeys(ARITHMETIC | {"NEG", "ABS"}, _operands("iuf")),
    **dict.fromkeys(FLOAT_BINARY | FLOAT_UNARY | {"FMA"}, _operands("f")),
    **dict.fromkeys(INTEGER_BINARY, _operands("iu")),
    **dict.fromkeys(BITWISE | {"NOT"}, _operands("iub")),
    **dict.fromkeys(COMPARISON, _operands("iufb", result=bool_)),
    "ISNAN": _operands("f", result=bool_),
    "WHERE": where,
    **dict.fromkeys(("SHARED", "LOCAL"), shared),
    "TABLE": table,
    "VIEW": view,
    "LOAD": load,
    "STORE": store,
    **dict.fromkeys(ATOMIC_OPS, atomic),
    **dict.fromkeys(("BARRIER", "FENCE", "LOOP", "RETURN"), plain),
    "SHUFFLE": shuffle,
    "BALLOT": ballot,
    "RANGE": range_,
    "ENDRANGE": _closes("RANGE"),
    "ENDLOOP": _closes("LOOP"),
    **dict.fromkeys(("BREAK", "CONTINUE"), leaves),
    "ASSERT": assert_,
    "PRINT": print_,
    "IF": if_,
    **dict.fromkeys(("ELSE", "ENDIF"), _closes("IF")),
}

# How many sources a node has; a PRINT has any number.
SOURCE_COUNTS = {
    **dict.fromkeys(RULES, 2),
    **dict.fromkeys(("PARAM", "CONST", "SPECIAL", "VAR", "SHARED", "LOCAL", "TABLE", "BARRIER"), 0),
    **dict.fromkeys(("FENCE", "LOOP", "RETURN"), 0),
    **dict.fromkeys(FLOAT_UNARY | {"NEG", "ABS", "NOT", "GET", "CAST", "BITCAST", "VIEW", "IF"}, 1),
    **dict.fromkeys(
        ("ENDRANGE", "ENDLOOP", "ELSE", "ENDIF", "BREAK", "CONTINUE", "ASSERT", "BALLOT"), 1
    ),
    **dict.fromkeys(("WHERE", "FMA", "STORE", "ATOMIC", "ATOMICSTORE", "RANGE"), 3),
    "CAS": 4,
}

"""Advice for errors: what to write for things that only Python or another kernel language has."""

from __future__ import annotations

import ast
import builtins
import difflib
import math
from collections.abc import Callable
from types import FunctionType

from hal_core.dtypes import uint32, uint64
from hal_kernel.lang.builtins import ORDERS, SPECIALS
from hal_kernel.lang.constants import COMPLEX
from hal_kernel.lang.mathematics import LANGUAGE

_LOOP = "Write for k in range(...) and guard what it does with if."

_OUTSIDE = "Write it outside the kernel, as a def with @hal.func above it."

STATEMENTS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("try", "Nothing in a kernel raises; test with if."),
    ast.With: ("with", "Write the statements without it."),
    ast.Import: ("import", "Import at the top of the file."),
    ast.ImportFrom: ("import", "Import at the top of the file."),
    ast.FunctionDef: ("a function inside", _OUTSIDE),
    ast.AsyncFunctionDef: ("a function inside", _OUTSIDE),
    ast.ClassDef: ("a class inside", "Use local variables."),
    ast.Global: ("global", "Store into a hal.Ptr parameter."),
    ast.Nonlocal: ("nonlocal", "Store into a hal.Ptr parameter."),
    ast.Delete: ("del", "Leave it out; locals end with the kernel."),
    ast.Match: ("match", "Write if and elif."),
    ast.Raise: ("raise", "Store a code into a buffer and raise on the host; or write assert."),
    ast.AsyncFor: ("async for", _LOOP),
    ast.AsyncWith: ("async with", "Write the statements without it."),
    ast.TryStar: ("try", "Nothing in a kernel raises; test with if."),
    ast.AnnAssign: ("an annotated assignment", "Write acc = hal.float64(0): the cast is the type."),
}

EXPRESSIONS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lambda: ("a lambda", _OUTSIDE),
    ast.ListComp: ("a list", _LOOP),
    ast.SetComp: ("a set", _LOOP),
    ast.DictComp: ("a dict", _LOOP),
    ast.GeneratorExp: ("a generator", _LOOP),
    ast.List: ("a list", "Use hal.local(dtype, size), or a tuple captured from outside."),
    ast.Set: ("a set", "Use local variables, or a tuple captured from outside."),
    ast.Dict: ("a dict", "Use local variables, or a tuple captured from outside."),
    ast.Tuple: (
        "a tuple",
        "Give each value a name: a, b = 1, 2, and write a single one without a comma. A tuple of "
        "constants is captured from outside.",
    ),
    ast.JoinedStr: ("text", 'Kernels hold numbers; to see them, write hal.print("x =", x).'),
    ast.NamedExpr: (":=", "Assign on a line of its own."),
    ast.Yield: ("yield", "Store into a hal.Ptr parameter."),
    ast.YieldFrom: ("yield", "Store into a hal.Ptr parameter."),
    ast.Await: ("await", "Write the expression without it."),
    ast.Slice: ("a slice", "Index one element: x[i]; loop over the rest."),
    ast.Starred: ("*", "Write each argument."),
}

# operator -> what to write where its operands are floats, and where they are integers.
FLOAT_FIXES = {
    "//": "Write hal.floor(a / b).",
    "%": "Write hal.fmod(a, b), or a - b * hal.floor(a / b) for Python's sign.",
}
INTEGER_FIXES = {
    "/": "Write a // b, or cast first: hal.float32(a) / hal.float32(b).",
    "**": "Write the product, or cast first: hal.pow(hal.float32(a), hal.float32(b)).",
}
BOOL_FIX = "Cast first: hal.int32(a). Join conditions with and, or."

# A name that most files give a module -> the statement that does.
_MODULES = {
    "math": "import math", "np": "import numpy as np", "hal": "import hal_core as hal",
}  # fmt: skip

# Functions of other kernel languages -> what to write here.
_FOREIGN = {
    **dict.fromkeys(
        ("syncthreads", "__syncthreads", "barrier", "threadgroup_barrier", "debug_barrier"),
        "Write hal.barrier().",
    ),
    **dict.fromkeys(
        ("shared", "shared_memory", "__shared__", "__local", "local_memory"),
        "Write tile = hal.shared(hal.float32, (16, 16)).",
    ),
    **dict.fromkeys(("max", "maximum", "fmax"), "Write max(a, b), as in Python."),
    **dict.fromkeys(("min", "minimum", "fmin"), "Write min(a, b), as in Python."),
    **dict.fromkeys(("abs", "fabs"), "Write abs(x), as in Python."),
    **dict.fromkeys(("round", "rint"), "Write round(x), as in Python."),
    **dict.fromkeys(("where", "select"), "Write a if c else b."),
    **dict.fromkeys(("threadIdx", "get_local_id"), "Write hal.thread_idx(0) for x."),
    **dict.fromkeys(("blockIdx", "get_group_id"), "Write hal.block_idx(0) for x."),
    **dict.fromkeys(("blockDim", "get_local_size"), "Write hal.block_dim(0) for x."),
    **dict.fromkeys(("gridDim", "get_num_groups"), "Write hal.grid_dim(0) for x."),
    **dict.fromkeys(("get_global_id", "grid"), "Write hal.global_idx(0) for x."),
    **dict.fromkeys(
        ("local", "local_array", "zeros", "ones", "empty", "full", "array"),
        "Write t = hal.local(hal.float32, (4, 4)), and assign its elements.",
    ),
    **dict.fromkeys(("clip", "clamp"), "Write min(max(x, low), high)."),
    "square": "Write x * x.",
    "atomic": "Write hal.atomic_add(p, i, value).",
    **{f"arc{name}": f"Write hal.a{name}(x)." for name in (
        "sin", "cos", "tan", "sinh", "cosh", "tanh",
    )},
    "arctan2": "Write hal.atan2(y, x).",
    **dict.fromkeys(("popc", "popcll", "__popc", "__popcll"), "Write hal.popcount(x)."),
    **dict.fromkeys(("__clz", "__clzll"), "Write hal.clz(x)."),
    **dict.fromkeys(("ffs", "__ffs", "__ffsll"), "Write hal.ctz(x) + 1 if x != 0 else 0."),
    "power": "Write hal.pow(x, y), or x ** y.",
    "float": "Write hal.float32 or hal.float64.",
    "int": "Write hal.int32 or hal.int64.",
    "bool": "Write hal.bool_.",
    "double": "Write hal.float64.",
    **dict.fromkeys(("complex64", "complex128", "complex"), COMPLEX),
}  # fmt: skip


def foreign(name: str) -> str | None:
    """Return what to write for a function of another kernel language; None for unknown ones."""
    if name in _FOREIGN or not name.lower().startswith("atomic"):
        return _FOREIGN.get(name)
    if "sub" in name.lower():
        return "Write hal.atomic_add(p, i, -v)."
    if "load" in name.lower():
        return "Write hal.atomic_load(p, i)."
    if "store" in name.lower():
        return "Write hal.atomic_store(p, i, value)."
    kinds = (
        ("add", "add"), ("min", "min"), ("max", "max"), ("exch", "exchange"), ("and", "and"),
        ("xor", "xor"), ("or", "or"),
    )  # fmt: skip
    # The first kind that the name contains: `atomicMax`, `atomic_fetch_max`, `atom_max`.
    own = [own for kind, own in kinds if kind in name.lower() and "cmp" not in name.lower()]
    if own and "compare" not in name:
        return f"Write hal.atomic_{own[0]}(p, i, value)."
    return "Write hal.atomic_compare_exchange(p, i, expected, desired)."


def uncalled(function: Callable[..., object], written: str) -> str:
    """Return what to write for a function that stands where a value is needed."""
    kind, name = type(function).__name__, getattr(function, "__name__", written)
    if function in SPECIALS:  # `hal.global_idx` without its call
        return f"Call it: {written}(0)."
    if function in ORDERS:
        return f"Give it to an atomic: hal.atomic_add(p, i, value, {written})."
    if kind == "KernelFunction":
        return "Put what both do into a function with @hal.func."
    if function is getattr(builtins, name, None):
        return CALLS.get(name, f"Call it: {written}(...).")
    if kind == "InlineFunction" or (is_own(function) and name in LANGUAGE):
        return f"Call it: {written}(...)."
    if is_own(function):
        return foreign(name) or f"Use {written} outside of the kernel."
    if name in LANGUAGE:
        return f"Write hal.{name}(...)."
    if isinstance(function, FunctionType):
        return f"Put @hal.func above def {name}, and call it: {written}(...)."
    return foreign(name) or "Write its expression here, with operators and hal functions."


def is_own(value: object) -> bool:
    """Tell whether a part of hal_core is used in a kernel, as `hal.Device`."""
    return str(getattr(value, "__module__", None)).startswith(("hal_core.", "hal_kernel."))


def undefined(name: str, near: list[str]) -> str:
    """Return what to write for a name that is not defined; `near` has defined ones like it."""
    if name in _MODULES:
        return f"Write {_MODULES[name]} at the top of the file."
    if name in LANGUAGE:
        return f"Write hal.{name}."
    known = f"Did you mean {near[0]}?" if near else "Import it, assign it, or make it a parameter."
    return foreign(name) or known


def index_dtype(dtype: object) -> str:
    """Return the dtype of an index that holds every number of another dtype."""
    return "hal.int64" if dtype in (uint32, uint64) else "hal.int32"


def absent(name: str) -> str:
    """Return what to write for a `hal.NAME` that does not exist."""
    if name in LANGUAGE:  # whoever adds an operation forgets this first
        return (
            f"Add {name} to _KERNEL_NAMES in hal_core/__init__.py: kernels know it, the package "
            "does not."
        )
    # In lower case, because other libraries have names like Float32 or ATAN2.
    if isinstance(getattr(math, name, None), float):  # hal.inf
        return f"Write math.{name}."
    near = difflib.get_close_matches(name.lower(), [*LANGUAGE, *CALLS], 1)
    if near and near[0] in LANGUAGE:
        return foreign(name) or f"Did you mean hal.{near[0]}?"
    known = CALLS[near[0]] if near else "Write it with operators and hal functions."
    return foreign(name) or known


def loop(over: ast.expr) -> str:
    """Return what to write for a loop over something else than `range(...)`."""
    fix = "Write for k in range(n):."
    try:
        numbers = list(ast.literal_eval(over))
    except (TypeError, ValueError):
        return fix
    if not numbers or any(type(number) is not int for number in numbers):
        return fix
    # `for k in (0, 2, 4):` is a range.
    first, last = numbers[0], numbers[-1]
    step = numbers[1] - first if len(numbers) > 1 else 1
    end = last + (1 if step > 0 else -1)
    if not step or numbers != list(range(first, end, step)):
        return fix
    bounds = [first, end, step] if step != 1 else [first, end] if first else [end]
    return f"Write for k in range({', '.join(map(str, bounds))}):."


# Python functions -> what kernels write instead.
CALLS = {
    "int": "Write hal.int32(x) or hal.int64(x).",
    "float": "Write hal.float32(x) or hal.float64(x).",
    "bool": "Write x != 0.",
    "print": 'Write hal.print("x =", x): it prints in checked mode and in the interpreter.',
    "len": "Pass the number of elements as a parameter: n: hal.int32.",
    "sum": "Write for k in range(n): acc += x[k].",
    "range": "Write for k in range(n):, or for k in hal.unroll(0, 8, 2):.",
    "enumerate": "Write for k in range(n): and index with k.",
    "zip": "Write for k in range(n): and index with k.",
    "divmod": "Write a // b and a % b.",
}

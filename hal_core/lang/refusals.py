"""What Python has and the kernel language has not, and what to write instead."""

from __future__ import annotations

import ast

_LOOP = "Write for k in range(...) and guard what it does with if."
_ONE = "Write one assignment on a line, each to one name or element."

STATEMENTS: dict[type[ast.AST], tuple[str, str]] = {
    ast.While: ("a while loop", "Write for k in range(limit): and guard its body with if."),
    ast.Break: ("break", "Guard the rest of the loop's body with if."),
    ast.Continue: ("continue", "Put the rest of the loop's body under if."),
    ast.Return: ("return", "Put the rest of the kernel under if, as in if i < n:."),
    ast.Assert: ("assert", "Check the values on the host before the launch."),
    ast.Raise: ("raise", "Store a code into a buffer and raise on the host."),
    ast.Try: ("try", "Nothing in a kernel raises; test with if."),
    ast.With: ("with", "Write the statements without it."),
    ast.Import: ("import", "Import at the top of the file."),
    ast.ImportFrom: ("import", "Import at the top of the file."),
    ast.FunctionDef: ("a function inside", "Write its expressions where they are used."),
    ast.AsyncFunctionDef: ("a function inside", "Write its expressions where they are used."),
    ast.ClassDef: ("a class inside", "Use local variables."),
    ast.Global: ("global", "Store into a hal.Ptr parameter."),
    ast.Nonlocal: ("nonlocal", "Store into a hal.Ptr parameter."),
    ast.Delete: ("del", "Leave it out; locals end with the kernel."),
    ast.Match: ("match", "Write if and elif."),
    ast.AsyncFor: ("async for", _LOOP),
    ast.AsyncWith: ("async with", "Write the statements without it."),
    ast.TryStar: ("try", "Nothing in a kernel raises; test with if."),
    ast.AnnAssign: ("an annotated assignment", "Write acc = hal.float64(0): the cast is the type."),
}

EXPRESSIONS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lambda: ("a lambda", "Write its expression where it is used."),
    ast.ListComp: ("a list", _LOOP),
    ast.SetComp: ("a set", _LOOP),
    ast.DictComp: ("a dict", _LOOP),
    ast.GeneratorExp: ("a generator", _LOOP),
    ast.List: ("a list", "Use local variables, or a tuple captured from outside."),
    ast.Set: ("a set", "Use local variables, or a tuple captured from outside."),
    ast.Dict: ("a dict", "Use local variables, or a tuple captured from outside."),
    ast.Tuple: ("a tuple", _ONE + " A tuple of constants is captured from outside."),
    ast.JoinedStr: ("text", "Kernels hold numbers; format on the host."),
    ast.NamedExpr: (":=", "Assign on a line of its own."),
    ast.Yield: ("yield", "Store into a hal.Ptr parameter."),
    ast.YieldFrom: ("yield", "Store into a hal.Ptr parameter."),
    ast.Await: ("await", "Write the expression without it."),
    ast.Slice: ("a slice", "Index one element: x[i]; loop over the rest."),
    ast.Starred: ("*", "Write each argument."),
}

# What typed operands an operator takes, and what to write for others.
FLOAT_FIXES = {
    "//": "Write hal.floor(a / b).",
    "%": "Write hal.fmod(a, b), or a - b * hal.floor(a / b) for Python's sign.",
}
INTEGER_FIXES = {
    "/": "Write a // b, or cast first: hal.float32(a) / hal.float32(b).",
    "**": "Write the product, or cast first: hal.pow(hal.float32(a), hal.float32(b)).",
}
BOOL_FIX = "Cast first: hal.int32(a). Join conditions with and, or."

# Python functions that have another name here.
CALLS = {
    "int": "Write hal.int32(x) or hal.int64(x).",
    "float": "Write hal.float32(x) or hal.float64(x).",
    "bool": "Write x != 0.",
    "print": "Store the value into a buffer and print it on the host.",
    "len": "Pass the number of elements as a parameter: n: hal.int32.",
    "sum": "Write for k in range(n): acc += x[k].",
    "range": "It stands in for k in range(...): only.",
    "enumerate": "Write for k in range(n): and index with k.",
    "zip": "Write for k in range(n): and index with k.",
    "divmod": "Write a // b and a % b.",
}

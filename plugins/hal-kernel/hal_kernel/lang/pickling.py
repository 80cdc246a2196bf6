"""Pickle kernels and the functions they call: by name if an import finds the object, else by value.

Python pickles functions by name. The kernel of a script, a notebook or a factory would then be
lost, because the other process has no such name to import. By value, a kernel is pickled as its IR,
which is all that a device compiles. A function with `@hal.func` is lowered anew at each call, so it
is pickled as its text, with the values of the names that it uses.
"""

from __future__ import annotations

import ast
import copyreg
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

from hal_core.dtypes import DType
from hal_core.errors import InvalidArgument
from hal_kernel.lang.constants import plain
from hal_kernel.lang.func import InlineFunction
from hal_kernel.lang.function import KernelFunction
from hal_kernel.lang.names import Names
from hal_kernel.lang.scope import closure_of

_MISSING = object()
Reduced = str | tuple[Any, ...]  # what pickle asks `__reduce__` for


def reduce_kernel(kernel: KernelFunction) -> Reduced:
    """Return what pickle writes for a kernel. Raises: KernelSyntaxError as `lower` does."""
    if _is_importable(kernel):
        return kernel.__qualname__
    state = {**vars(kernel), "_kernel": kernel.lower(), "_lines": ()}
    state.pop("__wrapped__", None)  # pickle knows functions by name only
    return copyreg.__newobj__, (KernelFunction,), state  # type: ignore[attr-defined]


def reduce_function(function: InlineFunction) -> Reduced:
    """Return what pickle writes for a function with `@hal.func`.

    Raises: InvalidArgument for a value that is no constant of the language; KernelSyntaxError when
    there is no source text.
    """
    if _is_importable(function):
        return function.__qualname__
    text, code = function.text(), function.__wrapped__.__code__
    state = {**vars(function), "_text": None}
    del state["__wrapped__"]  # written as `place`
    last = (text.tree.end_lineno or 0) + text.shift
    state["_lines"] = list(text.lines[code.co_firstlineno - 1 : last])
    place = code.co_filename, code.co_firstlineno, _captured(function.__wrapped__, text.tree)
    # As state and not as arguments, because functions that call each other refer to each other.
    return copyreg.__newobj__, (InlineFunction,), (state, place)  # type: ignore[attr-defined]


def restore_function(function: InlineFunction, state: tuple[Any, ...]) -> None:
    """Set the attributes of an unpickled function from what `reduce_function` wrote."""
    attributes, (filename, first, names) = state
    lines = attributes["_lines"]
    indented = lines[0][:1] in " \t"
    # Blank lines in front keep the file's line numbers. The text is compiled and not run, because
    # running it would call its decorator.
    front = "\n" * (first - 2) + "if 1:\n" if indented else "\n" * (first - 1)
    module = compile(front + "".join(lines), filename, "exec", dont_inherit=True)
    codes = [module]
    for code in codes:  # `def f[T](x)` stands inside another code
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    code = next(code for code in codes if code.co_name == attributes["__name__"])
    names["__loader__"] = restore_function  # `SourceText` must not compare it with the file here
    vars(function).update(attributes)
    function.__wrapped__ = FunctionType(code, names)
    function.__wrapped__.__module__ = function.__module__
    function._lines = ["\n"] * (first - 1) + lines


def _is_importable(made: KernelFunction | InlineFunction) -> bool:
    """Tell whether importing the module and looking up the name gives this very object."""
    if made.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(made.__module__)
    for part in made.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is made and _is_found(made.__module__)


def _is_found(name: str) -> bool:
    """Tell whether another process would find this module's file under its name.

    `importlib.util.find_spec` cannot tell: it looks into `sys.modules` first, where a program may
    have put a module that no file has.
    """
    module, (parent, _, _) = sys.modules.get(name), name.rpartition(".")
    spec = getattr(module, "__spec__", None)
    if spec is None or (parent and not _is_found(parent)):
        return False
    path = sys.modules[parent].__path__ if parent else None
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]  # as importlib
    specs = (finder.find_spec(name, path) for finder in finders)
    found = next((found for found in specs if found is not None), None)
    return found is not None and found.origin == spec.origin


class _Namespace(ModuleType):
    """A module reduced to the names a function uses: importing the real one would run its code."""

    def __reduce__(self) -> Reduced:
        return _Namespace, (self.__name__,), vars(self)


def _captured(function: FunctionType, tree: ast.FunctionDef) -> dict[str, Any]:
    """Return the values from outside of the function that its body uses, by name.

    `cfg.tiles.WIDTH` becomes {"cfg": namespace with "tiles": namespace with "WIDTH": value}.
    """
    names = Names(function, tree)
    scope = {**function.__globals__, **closure_of(function)}
    found: dict[str, Any] = {}
    for node in (part for statement in tree.body for part in ast.walk(statement)):
        dotted = ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
        name, *path = dotted.split(".")
        if names.is_local(name):
            continue
        value, into = scope.get(name, _MISSING), found
        while isinstance(value, ModuleType) and path:
            into = vars(into.setdefault(name, _Namespace(value.__name__)))
            name, *path = path
            value = getattr(value, name, _MISSING)  # a misspelt name: lowering reports it
        if value is not _MISSING and not isinstance(value, ModuleType):
            into[name] = _constant(function, name, value)
    return found


def _constant(function: FunctionType, name: str, value: Any) -> Any:
    """Return a value that the language knows as a constant. Raises: InvalidArgument for others."""
    value = plain(value)
    if isinstance(value, tuple):
        return tuple(_constant(function, name, part) for part in value)
    if isinstance(value, (int, float, DType, InlineFunction, KernelFunction)):
        return value
    if type(value).__module__ == "numpy" and hasattr(value, "ndim"):  # a table
        return value
    module = getattr(value, "__module__", None) or ""
    if callable(value) and module.partition(".")[0] in (
        "hal_core",
        "hal_kernel",
        "builtins",
        "math",
    ):
        return value
    raise InvalidArgument(
        f"pickle func {function.__name__}",
        f"its text uses {name!r}, a {type(value).__name__}, which is no constant of the language",
        got=value,
        fix="Use ints, floats, bools, dtypes, tuples of them, or functions with @hal.func.",
    )

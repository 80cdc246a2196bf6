"""From a function's annotations to the kernel's signature."""

from __future__ import annotations

import linecache
from types import CodeType, FunctionType
from typing import Any

from hal_core.dtypes import REFUSED_DTYPES, WIDTHS, DType, PointerType
from hal_core.errors import HalError, InvalidArgument, KernelSyntaxError
from hal_core.ir import CONST_POINTER, POINTER, VALUE, Param, Signature
from hal_core.ir.signature import LONGEST_NAME

# Flags of code objects.
_VARARGS = 0x04 | 0x08
_ASYNC = 0x80 | 0x200


def signature_of(function: FunctionType, caller: dict[str, Any]) -> Signature:
    """`caller` are the names where the function is defined.

    An annotation that is text (`from __future__ import annotations`) may use names of the
    enclosing function that its body does not use, and such names are in no closure.

    Raises: KernelSyntaxError pointing at the parameter.
    """
    code = function.__code__
    _check_form(function, code)
    textual = any(isinstance(text, str) for text in function.__annotations__.values())
    scope = {**function.__globals__, **caller, **closure_of(function)} if textual else {}
    if "return" in function.__annotations__ and _evaluate(function, "return", scope) is not None:
        fix = "Store into a hal.Ptr parameter, and write -> None."
        raise _error(function, "return", "a kernel gives nothing back", fix)
    params = []
    for position, name in enumerate(code.co_varnames[: code.co_argcount]):
        if name not in function.__annotations__:
            raise _error(function, name, *_unannotated(name, position))
        annotation = _evaluate(function, name, scope)
        if isinstance(annotation, PointerType):
            kind, dtype = CONST_POINTER if annotation.const else POINTER, annotation.dtype
        elif isinstance(annotation, DType) and annotation.itemsize:
            kind, dtype = VALUE, annotation
        else:
            shown = getattr(annotation, "__name__", annotation)
            fix = _annotated(name, annotation)
            raise _error(function, name, f"{shown} is not a parameter's type", fix)
        if dtype.name in REFUSED_DTYPES:
            problem = f"kernels do not compute with {dtype.name}"
            raise _error(function, name, problem, "Take hal.float32 and convert on the host.")
        params.append(Param(name, dtype, kind, position))
    return Signature(function.__name__, tuple(params))


def _unannotated(name: str, position: int) -> tuple[str, str]:
    if name == "self" and position == 0:
        fix = "Leave self out and put @staticmethod above @hal.kernel, or move it out of the class."
        return "a kernel is a plain function, not a method", fix
    return f"parameter {name!r} has no annotation", _annotated(name, None)


def _annotated(name: str, annotation: object) -> str:
    """How to write the parameter."""
    for kind, fix in WIDTHS:
        if annotation is kind:
            return fix.replace("Write ", f"Write {name}: ")
    return f"Write {name}: hal.Ptr[hal.float32], hal.ConstPtr[hal.float32] or hal.int32."


def _check_form(function: FunctionType, code: CodeType) -> None:
    if code.co_name == "<lambda>" or code.co_flags & _ASYNC:
        raise _error(function, "", "a kernel is a plain function", "Write it with def.")
    for name in (function.__name__, *code.co_varnames[: code.co_argcount]):
        if not name.isascii():
            raise _error(function, name, f"the name {name!r} is not ASCII", "Rename it.")
        if len(name) > LONGEST_NAME:
            problem = f"a name has {LONGEST_NAME} letters at most, not {len(name)}"
            raise _error(function, name, problem, "Rename it.")
    if code.co_flags & _VARARGS or code.co_kwonlyargcount:
        raise _error(
            function, "", "a kernel has plain parameters only", "Write each one, without * or **."
        )
    if function.__defaults__:
        raise _error(
            function, "", "a kernel's parameter has no default", "Give the value at the launch."
        )


def closure_of(function: FunctionType) -> dict[str, Any]:
    """The captured names that have a value by now."""
    names = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue  # assigned after the kernel's definition
    return names


def _evaluate(function: FunctionType, name: str, scope: dict[str, Any]) -> Any:
    annotation = function.__annotations__[name]
    while isinstance(annotation, str):
        try:
            annotation = eval(annotation, scope)  # what Python itself does with an annotation
        except Exception as error:
            said, fix = str(error), _annotated(name, None)
            if isinstance(error, InvalidArgument):  # of Ptr[...]
                said, fix = f"{error.problem} (got {error.got!r})", error.fix or fix
            reason = f"the annotation of {name!r} cannot be read: {said}"
            raise _error(function, name, reason, fix) from error
    return annotation


def _error(function: FunctionType, name: str, problem: str, fix: str) -> KernelSyntaxError:
    # Only a failure pays for reading the source.
    from hal_core.lang.text import SourceText

    try:
        lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
        text = SourceText(function, lines)
    except HalError:
        code = function.__code__
        return KernelSyntaxError(
            problem, fix=fix, filename=code.co_filename, lineno=code.co_firstlineno,
            kernel=function.__name__,
        )  # fmt: skip
    place = text.tree.returns if name == "return" else text.parameter(name)
    return text.error(place or text.tree, problem, fix)

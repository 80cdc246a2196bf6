"""Read annotations: the signature of a kernel, and the parameters of a function it calls."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Sequence
from types import FrameType, FunctionType
from typing import Any, get_args, get_origin

from hal_core.concurrency import unless_of_a_signal
from hal_core.dtypes import DTYPES, STORAGE_DTYPES, DType
from hal_core.errors import HalError, InvalidArgument
from hal_core.signature import CONST_POINTER, LONGEST_NAME, POINTER, VALUE, Param, Signature
from hal_kernel.errors import KernelSyntaxError
from hal_kernel.ir.reserved import is_taken
from hal_kernel.lang.pointers import WIDTHS, PointerType
from hal_kernel.lang.scope import OutOfReach, Scope
from hal_kernel.lang.text import SourceText

# Flags of code objects: *args and **kwargs, coroutines and async generators.
_VARARGS = 0x04 | 0x08
_ASYNC = 0x80 | 0x200

# A parameter of a function: its name, and a dtype, a pointer or None for anything.
Parameter = tuple[str, DType | PointerType | None]
# The annotation of what a function returns: a dtype, several, NoneType, or None for anything.
Returned = type | tuple[DType, ...] | None


def signature_of(function: FunctionType, caller: FrameType, lines: Sequence[str]) -> Signature:
    """Return the signature that a kernel's annotations declare.

    `caller` and `lines` help to find the names in annotations that are strings, as all are with
    `from __future__ import annotations`: see `Scope`.

    Raises: KernelSyntaxError pointing at the parameter.
    """
    definition = _Definition(function, Scope(function, caller, lines), "kernel")
    if is_taken(function.__name__):
        problem = f"{function.__name__!r} is a word or a function of some device's language"
        raise definition.error("", problem, "Rename the kernel, which has one name on all devices.")
    if definition.annotation("return") is not None:
        fix = "Store into a hal.Ptr parameter, and write -> None."
        raise definition.error("return", "a kernel returns no value", fix)
    params = []
    for position, name in enumerate(definition.names):
        if name not in function.__annotations__:
            problem, fix = f"parameter {name!r} has no annotation", _annotated(name, None)
            if name in ("self", "cls") and position == 0:
                problem = "a kernel must be a plain function, not a method"
                fix = f"Leave {name} out and put @staticmethod above @hal.kernel, or move it out "
                fix += "of the class."
            raise definition.error(name, problem, fix)
        annotation = definition.annotation(name)
        if isinstance(annotation, PointerType):
            kind, dtype = CONST_POINTER if annotation.const else POINTER, annotation.dtype
        else:
            kind, dtype = VALUE, definition.value(name, annotation)
        params.append(Param(name, dtype, kind, position))
    return Signature(function.__name__, tuple(params))


def parameters_of(
    function: FunctionType, caller: FrameType, lines: Sequence[str]
) -> tuple[tuple[Parameter, ...], Returned]:
    """Return the parameters of a function that kernels call, and the type that it returns.

    The type is a dtype, a tuple of them for `-> tuple[...]`, NoneType for `-> None`, or None
    without annotation.

    Raises: KernelSyntaxError pointing at the parameter.
    """
    definition = _Definition(function, Scope(function, caller, lines), "function")
    annotated: dict[str, Any] = {}
    for name in function.__annotations__:
        annotation = definition.annotation(name)
        if name == "return" and annotation in (None, type(None)):
            annotation = type(None)
        elif name == "return" and get_origin(annotation) is tuple:
            annotation = tuple(definition.value(name, part) for part in get_args(annotation))
        elif name == "return" or not isinstance(annotation, PointerType):
            definition.value(name, annotation)
        annotated[name] = annotation
    parameters = tuple((name, annotated.get(name)) for name in definition.names)
    return parameters, annotated.get("return")


# Cached, because most annotations are the same few strings.
_compiled = functools.lru_cache(256)(lambda text: compile(text.strip(), "<annotation>", "eval"))


class _Definition:
    """The name and the parameters of a function; `what` is "kernel" or "function", for errors."""

    def __init__(self, function: FunctionType, scope: Scope, what: str) -> None:
        code = function.__code__
        self.function, self.scope, self.what = function, scope, what
        self.names = code.co_varnames[: code.co_argcount]
        if code.co_name == "<lambda>" or code.co_flags & _ASYNC:
            raise self.error("", f"a {what} must be a plain function", "Write it with def.")
        for name in (function.__name__, *self.names):
            if not name.isascii():
                raise self.error(name, f"the name {name!r} is not ASCII", "Rename it.")
            if len(name) > LONGEST_NAME:
                problem = f"a name may have {LONGEST_NAME} letters at most, not {len(name)}"
                raise self.error(name, problem, "Rename it.")
        if code.co_flags & _VARARGS or code.co_kwonlyargcount:
            fix = "Write each one, without * or **."
            raise self.error("", f"a {what} may have plain parameters only", fix)
        if function.__defaults__:
            where = "at the launch" if what == "kernel" else "in the call"
            fix = f"Give the value {where}."
            raise self.error("", f"a {what}'s parameter must have no default", fix)

    def annotation(self, name: str) -> Any:
        annotation = self.function.__annotations__.get(name)
        # A string may name a variable that holds another string.
        while isinstance(annotation, str):
            try:
                # Python evaluates an annotation in the same way.
                annotation = eval(_compiled(annotation), self.function.__globals__, self.scope)
            # The user's text may raise anything.
            except unless_of_a_signal(Exception) as error:
                said, fix = str(error), _annotated(name, None)
                if isinstance(error, InvalidArgument):  # raised by Ptr[...]
                    said, fix = f"{error.problem} (got {error.got!r})", error.fix or fix
                elif isinstance(error, OutOfReach):
                    fix = f"Put @hal.{'kernel' if self.what == 'kernel' else 'func'} above its def,"
                    fix += " below the line that assigns the variable."
                reason = f"the annotation of {name!r} cannot be read: {said}"
                raise self.error(name, reason, fix) from error
        return annotation

    def value(self, name: str, annotation: object) -> DType:
        """Return the annotation as the dtype of a value. Raises: KernelSyntaxError."""
        if not isinstance(annotation, DType) or annotation.name not in DTYPES:
            shown = getattr(annotation, "__name__", annotation)
            what = "what a function gives" if name == "return" else "a parameter's type"
            raise self.error(name, f"{shown} is not {what}", _annotated(name, annotation))
        if annotation in STORAGE_DTYPES:
            fix = "Write -> hal.float32." if name == "return" else f"Write {name}: hal.float32."
            raise self.error(name, f"{annotation} is for memory; a value is a float32", fix)
        return annotation

    def error(self, name: str, problem: str, fix: str) -> KernelSyntaxError:
        """Return an error that points at the parameter `name`."""
        function = self.function
        own = self.what == "kernel"
        kernel, within = (function.__name__, "") if own else (None, f"in {function.__name__}")
        try:
            lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
            text = SourceText(function, lines).within_call(kernel, within, 0)
        except HalError:
            return KernelSyntaxError(
                f"{within}: {problem}" if within else problem,
                fix=fix,
                filename=function.__code__.co_filename,
                lineno=function.__code__.co_firstlineno,
                kernel=kernel,
            )
        place = text.tree.returns if name == "return" else text.parameter(name)
        return text.error(place or text.tree, problem, fix)


def _annotated(name: str, annotation: object) -> str:
    """Return the fix of an error: how to annotate the parameter."""
    place = "->" if name == "return" else f"{name}:"
    for kind, fix in WIDTHS:
        if annotation is kind:
            return fix.replace("Write ", f"Write {place} ")
    if name == "return":
        return "Write -> hal.float32."
    return f"Write {name}: hal.Ptr[hal.float32], hal.ConstPtr[hal.float32] or hal.int32."

"""The decorator `@hal.func`, which makes functions that kernels call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any, NoReturn, TypeVar

from hal_core.errors import InvalidArgument, Unsupported
from hal_kernel.lang.annotations import Parameter, Returned, parameters_of
from hal_kernel.lang.definition import Definition
from hal_kernel.lang.text import SourceText

R = TypeVar("R")


class InlineFunction(Definition):
    """A function in the kernel language, which is inlined at each call.

    The signature and the lines of the file are read at the definition, the body is lowered at each
    call.
    """

    parameters: tuple[Parameter, ...]  # (name, annotation); without annotation: takes any value
    returns: Returned  # the annotated type, or types; None: without annotation

    def __init__(self, function: FunctionType, caller: FrameType) -> None:
        super().__init__(function)
        self.parameters, self.returns = parameters_of(function, caller, self._lines)
        self._text: SourceText | None = None

    def text(self) -> SourceText:
        """Return the source text. Raises: KernelSyntaxError when there is none."""
        if self._text is None:
            self._text = SourceText(self.__wrapped__, self._lines)
        return self._text

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise Unsupported(
            f"{self.__name__}(...)",
            "a function with @hal.func is called inside @hal.kernel functions only",
            fix="Outside a kernel write it as plain Python.",
        )

    def _by_value(self) -> NoReturn:
        raise Unsupported(
            f"pickle func {self.__name__}", "another process cannot import it",
            fix="Send a kernel that calls it, or define it in a module of a file.",
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<func {self.__name__}({', '.join(name for name, _ in self.parameters)})>"


def func(function: Callable[..., R], /) -> Callable[..., R]:
    """Make a function that kernels and other such functions can call: `@hal.func`.

    It is written in the language of kernels, is inlined where it is called, and has locals of its
    own. A parameter annotated with a dtype takes a value of that dtype. One with `hal.Ptr` or
    `hal.ConstPtr` takes a pointer or a shared array, which then has one index, in row-major order.
    One without annotation takes any value. Every path ends with `return value`, or `return a, b`,
    which `x, y = f(...)` takes; a function that returns no value is called on a line of its own.

    Raises: KernelSyntaxError for a signature that cannot be called; the body is read at the first
    call.
    """
    if not isinstance(function, FunctionType):
        fix = "Put @hal.func directly above a def."
        raise InvalidArgument("func", "not a Python function", got=function, fix=fix)
    made: Any = InlineFunction(function, sys._getframe(1))
    return made  # type: ignore[no-any-return]  # to type checkers it is one of any arguments: numbers, too

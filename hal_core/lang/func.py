"""`@hal.func`: a function that kernels call."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from hal_core.errors import InvalidArgument, Unsupported
from hal_core.lang.annotations import Parameter, parameters_of
from hal_core.lang.text import SourceText

if TYPE_CHECKING:
    from typing import Self

F = TypeVar("F")


class InlineFunction:
    """A function in the kernel language; each call puts its body where the call is.

    The signature and the text are taken at the definition, the body is read at each call.
    """

    parameters: tuple[Parameter, ...]  # (name, annotation); None: takes whatever it is given
    returns: type | None  # what it says it gives; None: nothing is said

    def __init__(self, function: FunctionType, caller: dict[str, Any]) -> None:
        self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self._lines = current_lines(function)
        self.parameters, self.returns = parameters_of(function, caller)
        self._text: SourceText | None = None

    def text(self) -> SourceText:
        """As its author wrote it. Raises: KernelSyntaxError when that cannot be had."""
        if self._text is None:
            self._text = SourceText(self.__wrapped__, self._lines)
        return self._text

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise Unsupported(
            f"{self.__name__}(...)",
            "a function with @hal.func is called inside @hal.kernel functions only",
            fix="Outside a kernel write it as plain Python.",
        )

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name, as functions are, where an import finds it; else as text and constants.

        Raises: InvalidArgument naming what the text uses and is no constant of the language.
        """
        from hal_core.lang.pickling import reduce_function  # few processes send functions

        return reduce_function(self)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        from hal_core.lang.pickling import restore_function

        restore_function(self, state)

    def __copy__(self) -> Self:
        return self  # as a copy of a function is the function

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<func {self.__name__}({', '.join(name for name, _ in self.parameters)})>"


def func(function: F, /) -> F:
    """Makes a function that kernels and other such functions can call: `@hal.func`.

    It is written in the language of kernels, is read where it is called, and has names of its own.
    A parameter annotated with a dtype takes a value of it, one with `hal.Ptr` or `hal.ConstPtr`
    a pointer or a shared array of that dtype, row after row and with one index, and one without
    annotation whatever it is given.
    `return value` stands at the end, or at the end of all sides of an `if`; a function without is
    called on a line of its own.

    Raises: KernelSyntaxError for a signature that cannot be called; the body is read at the first
    call.
    """
    if not isinstance(function, FunctionType):
        fix = "Put @hal.func directly above a def."
        raise InvalidArgument("func", "not a Python function", got=function, fix=fix)
    made: Any = InlineFunction(function, sys._getframe(1).f_locals)
    return made  # type: ignore[no-any-return]  # to type checkers it stays the function


def current_lines(function: FunctionType) -> Sequence[str]:
    """The file's lines as they are now; of a file that was edited the cache is dropped."""
    filename = function.__code__.co_filename
    linecache.checkcache(filename)
    return linecache.getlines(filename, function.__globals__)

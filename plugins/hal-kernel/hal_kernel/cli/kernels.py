"""Find the kernels of a Python file by `FILE`, `FILE:KERNEL` or `FILE:factory(16)`."""

from __future__ import annotations

import contextlib
import io
import math
import os
import runpy
import sys
from collections.abc import Callable
from traceback import extract_tb
from typing import Any, TypeGuard

from hal_core.concurrency import unless_of_a_signal
from hal_core.device import Device
from hal_core.device.plugin import one_line
from hal_core.errors import HalError, InvalidArgument
from hal_core.files import missing
from hal_core.source import Source, Writable, written
from hal_kernel.errors import KernelSyntaxError
from hal_kernel.ir import Kernel
from hal_kernel.lang.function import KernelFunction

AnyKernel = Source | Writable

FORMS = "Run this Python file, and take the kernel of this name, if the file has several. "
FORMS += "An expression such as factory(16) makes a kernel."

_OPERATION = "load kernel"


class KernelFile:
    """A Python file that was run, and the kernels in it.

    Raises: InvalidArgument when the file is missing or fails; KernelSyntaxError.
    """

    def __init__(self, target: str) -> None:
        self.path, self.wanted = divided(target)
        sys.path.insert(0, os.path.dirname(os.path.abspath(self.path)))  # it may import neighbours
        # Not as __main__: a kernel is wanted, not the program below that name.
        self.variables: dict[str, Any] = self._run(
            lambda: runpy.run_path(self.path, run_name="hal_kernels")
        )
        self.kernels: dict[str, AnyKernel] = {
            name: value for name, value in self.variables.items() if is_kernel(value)
        }

    def chosen(self) -> dict[str, AnyKernel]:
        """Return the kernel that was asked for, under its name; without one all of the file.

        Raises: InvalidArgument when there is no such kernel, or none at all.
        """
        known = ", ".join(self.kernels)
        if not self.wanted:
            if not self.kernels:
                fix = "Decorate a function at the top level with @hal.kernel, make a hal.Source, "
                fix += "or call what makes a kernel, as in FILE:factory(16)."
                raise InvalidArgument(_OPERATION, "the file has no kernel", got=self.path, fix=fix)
            return self.kernels
        if self.wanted in self.kernels:
            return {self.wanted: self.kernels[self.wanted]}
        if self.wanted.isidentifier() and self.wanted not in self.variables:
            fix = f"In the file: {known or 'none'}."
            raise InvalidArgument(_OPERATION, "no such kernel", got=self.wanted, fix=fix)
        found = self.evaluate(self.wanted)
        if not is_kernel(found):
            fix = f"Call a function that makes one: {self.path}:{self.wanted}(...)."
            fix = fix if callable(found) else f"In the file: {known or 'none'}."
            problem = f"{self.wanted} is no kernel"
            raise InvalidArgument(_OPERATION, problem, got=type(found).__name__, fix=fix)
        return {self.wanted: found}

    def one(self) -> AnyKernel:
        """Return the kernel that was asked for, or the only one of the file.

        Raises: InvalidArgument as `chosen` does, and when the file has several.
        """
        found = self.chosen()
        if len(found) > 1:
            problem = f"{self.path} has several kernels: {', '.join(found)}"
            raise InvalidArgument(_OPERATION, problem, fix="Give FILE:KERNEL.")
        return next(iter(found.values()))

    def evaluate(self, expression: str) -> Any:
        """Return what a Python expression gives among the file's variables, inf and nan.

        Raises: InvalidArgument when it fails.
        """
        names = {"inf": math.inf, "nan": math.nan, **self.variables}
        return self._run(lambda: eval(expression, names), expression)

    def _run(self, step: Callable[[], Any], expression: str = "") -> Any:
        """Run the file, or an expression of it. Only if that fails, show what it printed."""
        printed, own = io.StringIO(), sys.argv
        sys.argv = [self.path]
        try:
            with contextlib.redirect_stdout(printed):
                return step()
        except unless_of_a_signal(BaseException) as error:
            if isinstance(error, KernelSyntaxError):  # its text shows the line already
                raise
            sys.stderr.write(printed.getvalue())
            said = one_line(error)
            lines = [
                at.lineno for at in extract_tb(error.__traceback__) if at.filename == self.path
            ]
            if expression:
                fix = "It is a Python expression of the file's names, in quotes for the shell."
                problem = f"{expression} failed: {said}"
            elif isinstance(error, SyntaxError) and error.filename == self.path:
                problem, fix = f"{self.path} is no Python: {said}", ""
            else:
                fix = "Put the launches under if __name__ == '__main__': this command does not run "
                fix += "that part."
                fix = f"See line {lines[-1]}. {fix}" if lines else fix
                problem = f"{self.path} ran and failed: {said}"
            raise InvalidArgument(_OPERATION, problem, fix=fix) from error
        finally:
            sys.argv = own


def is_kernel(value: object) -> TypeGuard[AnyKernel]:
    """Tell whether a device compiles an object: text, or an object of any front end."""
    return isinstance(value, Source) or hasattr(type(value), "__hal_source__")


def lowered(kernel: AnyKernel, device: str | None = None) -> Kernel | Source:
    """Return the IR of a kernel, or its text; another front end writes that for a device.

    Without `device` that is the default device.

    Raises: KernelSyntaxError; InvalidArgument for what an object that it captures raises.
    """
    if isinstance(kernel, Kernel | Source):
        return kernel
    try:
        if isinstance(kernel, KernelFunction):
            return kernel.lower()
        return written(kernel, Device[device or Device.DEFAULT])
    except unless_of_a_signal(BaseException) as error:
        if isinstance(error, HalError):
            raise
        name = getattr(kernel, "name", type(kernel).__name__)
        problem = f"{name} cannot be read: {one_line(error)}"
        own = isinstance(kernel, KernelFunction)
        fix = f"{name}.lower() shows where." if own else "Its __hal_source__(device) failed."
        raise InvalidArgument(_OPERATION, problem, fix=fix) from error


def divided(target: str) -> tuple[str, str]:
    """Return the path and what follows it; a path may contain a colon, and so may an expression.

    Raises: InvalidArgument for a path that is no Python file.
    """
    ends = [place for place, letter in enumerate(target) if letter == ":"] + [len(target)]
    for end in reversed(ends):
        path = target[:end]
        if os.path.isfile(path):
            if path.endswith(".py"):
                return path, target[end + 1 :].strip()
            raise InvalidArgument(_OPERATION, "not a Python file", got=path)
    raise missing(_OPERATION, target.partition(":")[0], "Give a Python file, or FILE:KERNEL.")

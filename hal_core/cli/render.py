"""`hal render`: print the text of a kernel in one language."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import runpy
import sys
from traceback import extract_tb

from hal_core.errors import InvalidArgument, KernelSyntaxError
from hal_core.ir import Kernel, Source
from hal_core.lang import KernelFunction
from hal_core.render import RENDERERS

HELP = "Print the text of a kernel in one language."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    file = "Run this Python file, and take the kernel of this name, if the file has several."
    add("kernel", metavar="FILE[:KERNEL]", help=file)
    add("--language", metavar="L", help=f"Write {', '.join(RENDERERS)}; c when left out.")
    add("-o", "--output", metavar="FILE", help="Write to this file.")


def run(options: argparse.Namespace) -> int:
    text = rendered(options.kernel, options.language)
    if not options.output:
        print(text)
        return 0
    try:
        with open(options.output, "w", encoding="utf-8") as file:
            print(text, file=file)
    except OSError as error:
        problem = f"the file cannot be written: {error.strerror}"
        raise InvalidArgument("render", problem, got=options.output) from error
    return 0


def rendered(target: str, language: str | None) -> str:
    """Return the text of the kernel that `FILE:KERNEL` names. Raises: InvalidArgument."""
    renderer = RENDERERS.get(language or "c")
    if renderer is None:
        known = ", ".join(RENDERERS)
        raise InvalidArgument("render", "no such language", got=language, fix=f"Known: {known}.")
    kernel = load(target)
    if not isinstance(kernel, Source):
        return renderer().render(kernel)
    if language not in (None, kernel.language):
        problem = f"{kernel.name} is text in {kernel.language} already"
        fix = "A hal.Source is not translated; a function with @hal.kernel is."
        raise InvalidArgument("render", problem, got=language, fix=fix)
    return kernel.text


def load(target: str) -> Kernel | Source:
    """Return the kernel of `FILE:KERNEL`, or of `FILE` if it has only one. The file is run.

    Raises: InvalidArgument when the file is missing, fails, or has no such kernel;
    KernelSyntaxError.
    """
    path, name = target, ""
    if not os.path.isfile(target):  # a path may contain a colon itself
        path, _, name = target.rpartition(":")
        if not os.path.isfile(path):
            got = path or name
            raise InvalidArgument("render", "no such file", got=got, fix="Give FILE:KERNEL.")
    kernels = {
        key: value
        for key, value in variables(path).items()
        if isinstance(value, (KernelFunction, Kernel, Source))
    }
    if not kernels:
        fix = "Decorate a function at the top level with @hal.kernel, or make a hal.Source."
        raise InvalidArgument("render", "the file has no kernel", got=path, fix=fix)
    known = ", ".join(kernels)
    if path == target and len(kernels) > 1:
        problem = f"{path} has several kernels: {known}"
        raise InvalidArgument("render", problem, fix="Give FILE:KERNEL.")
    if path != target and name not in kernels:
        raise InvalidArgument("render", "no such kernel", got=name, fix=f"In the file: {known}.")
    found = kernels[name] if name else next(iter(kernels.values()))
    return found.lower() if isinstance(found, KernelFunction) else found


def variables(path: str) -> dict[str, object]:
    """Run a Python file and return its variables. Only if it fails, show what it printed."""
    if not path.endswith(".py"):
        raise InvalidArgument("render", "not a Python file", got=path)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # the file may import its neighbours
    printed, own = io.StringIO(), sys.argv
    sys.argv = [path]
    try:
        with contextlib.redirect_stdout(printed):
            # Not as __main__: a kernel is wanted, not the program below that name.
            return runpy.run_path(path, run_name="hal_rendered")
    except KernelSyntaxError:
        raise  # its text shows the line already
    except (Exception, SystemExit) as error:
        sys.stderr.write(printed.getvalue())
        said = f"{type(error).__name__}: {error}".rstrip(".")
        lines = [at.lineno for at in extract_tb(error.__traceback__) if at.filename == path]
        fix = "Put what launches kernels below if __name__ == '__main__': it does not run then."
        fix = f"See line {lines[-1]}. {fix}" if lines else fix
        raise InvalidArgument("render", f"{path} ran and failed: {said}", fix=fix) from error
    finally:
        sys.argv = own

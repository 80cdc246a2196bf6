"""A kernel of a Python file, for the command line."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import sys
from traceback import extract_tb
from types import ModuleType

from hal_core.errors import InvalidArgument, KernelSyntaxError
from hal_core.ir import Kernel, Source
from hal_core.lang import KernelFunction


def load(target: str) -> Kernel | Source:
    """The kernel of `FILE:KERNEL`, or of `FILE` if that has one only. The file is run as a module.

    Raises: InvalidArgument for a file that is none, fails, or has no such kernel;
    KernelSyntaxError.
    """
    path, name = _split(target)
    kernels = {
        key: value
        for key, value in vars(_run(path)).items()
        if isinstance(value, (KernelFunction, Kernel, Source))
    }
    if not kernels:
        fix = "Decorate a function at the top level with @hal.kernel, or make a hal.Source."
        raise InvalidArgument("render", "the file has no kernel", got=path, fix=fix)
    there = ", ".join(kernels)
    if name is None and len(kernels) > 1:
        problem = f"{path} has several kernels: {there}"
        raise InvalidArgument("render", problem, fix="Give FILE:KERNEL.")
    if name is not None and name not in kernels:
        raise InvalidArgument("render", "no such kernel", got=name, fix=f"In the file: {there}.")
    found = kernels[name] if name is not None else next(iter(kernels.values()))
    return found.lower() if isinstance(found, KernelFunction) else found


def _split(target: str) -> tuple[str, str | None]:
    if os.path.isfile(target):
        return target, None
    path, _, name = target.rpartition(":")
    if not os.path.isfile(path):
        raise InvalidArgument("render", "no such file", got=path or name, fix="Give FILE:KERNEL.")
    return path, name


def _run(path: str) -> ModuleType:
    """What the file prints is shown only if it fails: what is asked for is the kernel."""
    spec = importlib.util.spec_from_file_location("hal_rendered", path)
    if spec is None or spec.loader is None:
        raise InvalidArgument("render", "not a Python file", got=path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            spec.loader.exec_module(module)
    except KernelSyntaxError:
        raise  # shows its place
    except (Exception, SystemExit) as error:
        sys.stderr.write(printed.getvalue())
        said = f"{type(error).__name__}: {error}".rstrip(".")
        lines = [at.lineno for at in extract_tb(error.__traceback__) if at.filename == spec.origin]
        fix = f"See line {lines[-1]}." if lines else None
        raise InvalidArgument("render", f"{path} ran and failed: {said}", fix=fix) from error
    return module

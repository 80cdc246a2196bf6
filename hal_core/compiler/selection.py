"""Select the compiler of a device that serves a kernel."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING

from hal_core import config
from hal_core.concurrency import unless_of_a_signal
from hal_core.device.plugin import one_line
from hal_core.errors import (
    CompilerUnavailable,
    DeviceFault,
    ForkError,
    HalError,
    InvalidArgument,
    InvalidState,
)

if TYPE_CHECKING:
    from hal_core.compiler import Compiler, CompilerPair
    from hal_core.device.base import Compiled


def forced(family: str, names: list[str]) -> str | None:
    """Return the pair that the environment asks for: `CPU_CC=clang`, else `CPU_CLANG=1`.

    Raises: InvalidArgument when two are switched on, or the name is unknown.
    """
    variable = f"{family}_CC"
    chosen = os.environ.get(variable, "").strip()
    if chosen in names:
        return chosen
    if chosen:
        near = difflib.get_close_matches(chosen, names, 3, 0.4)
        known = f"Known: {', '.join(names)}."
        fix = f"Did you mean {', '.join(near)}? {known}" if near else known
        raise InvalidArgument(variable, "no such compiler", got=chosen, device=family, fix=fix)
    on = {}  # variable -> the pair that it switches on
    for name in names:
        variable = f"{family}_{name.upper()}"
        if config.Setting(variable, False, f"1 chooses the compiler {name}", config.flag).read():
            on[variable] = name
    if len(on) > 1:
        both = " and ".join(f"{variable}=1" for variable in on)
        fix = f"Leave one, or set {family}_CC={next(iter(on.values()))}, which beats them."
        raise InvalidArgument(both, "two compilers are forced", device=family, fix=fix)
    return next(iter(on.values()), None)


def select(device: Compiled, language: str | None) -> tuple[CompilerPair, Compiler]:
    """Return the forced pair, or the first one whose compiler can be made, and that compiler.

    `language` is the language of a `Source`; None asks for a pair that has a renderer. A pair that
    fails is remembered with its reason, and is not tried again.

    Raises: CompilerUnavailable with every reason, when no pair serves.
    """
    pairs = device.compilers
    name = forced(device.family, [pair.name for pair in pairs])
    able = [
        pair
        for pair in pairs
        if (pair.renderer is not None if language is None else pair.language == language)
    ]
    operation = "compile" if language is None else f"compile a {language!r} source"
    takes = ", ".join(sorted({pair.language for pair in pairs})) or "no language"
    fix: str | None = f"It takes hal.Source kernels in {takes}."
    if not able:
        problem = "no compiler of this device takes it"
        if language is None:
            problem = "this device takes text alone, and no @hal.kernel"
            fix = f"{fix} Choose another device, for example with HAL_DEVICE=CPU."
        raise CompilerUnavailable(operation, problem, device=device.name, fix=fix)
    if name is not None:
        able = [pair for pair in able if pair.name == name]
        if not able:
            problem = f"the compiler {name!r}, which the environment forces, does not take it"
            fix = f"Unset that: the device takes hal.Source kernels in {takes}."
            raise CompilerUnavailable(operation, problem, device=device.name, fix=fix)
    for pair in able:
        compiler = device._ready_compilers.get(pair.name)
        if compiler is None and pair.name not in device._failed_compilers:
            compiler = _try(device, pair)
        if compiler is not None:
            return pair, compiler
    reasons = "; ".join(f"{pair.name}: {device._failed_compilers[pair.name]}" for pair in able)
    problem, fix = f"no compiler can serve: {reasons}", None
    if name is not None:
        switches = f"{device.family}_CC, and {device.family}_{name.upper()}"
        fix = f"The environment forces {name}: unset {switches}, to allow others."
    raise CompilerUnavailable(operation, problem, device=device.name, fix=fix)


def _try(device: Compiled, pair: CompilerPair) -> Compiler | None:
    """Make the pair's compiler, or remember why that is not possible.

    Raises: DeviceFault, ForkError and InvalidState of the device itself.
    """
    with device._lock:
        try:
            made: Compiler | None = pair.compiler()
            if made is None:
                raise TypeError("its function returned no compiler")
            return device._ready_compilers.setdefault(pair.name, made)
        except (DeviceFault, ForkError, InvalidState):  # of the device: no other pair can serve
            raise
        except unless_of_a_signal(BaseException) as error:  # a plugin may raise anything
            reason = one_line(error)
            if isinstance(error, HalError):  # a part of a sentence that names operation and device
                reason = error.problem + (f" ({error.fix.rstrip('.')})" if error.fix else "")
            elif isinstance(error, (ImportError, OSError)):
                reason = reason.partition(": ")[2] or reason
        device._failed_compilers[pair.name] = reason
        return None
